/** Checks the rights of Weft's pods on a running cluster. */
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { TestCluster } from './support/cluster.ts';
import { confinementOf, inContainer, memoryOf, weftContainers } from './support/containers.ts';
import { podPerNode, podsOf } from './support/pods.ts';
import { SYSTEM } from './support/weft.ts';

const NUMBERS = { DAC_OVERRIDE: 1, NET_ADMIN: 12, NET_RAW: 13, SYS_PTRACE: 19, SYS_ADMIN: 21 };
type Capability = keyof typeof NUMBERS;

/** Rights of a container beyond none. */
interface Rights {
  readonly root: boolean;
  readonly capabilities: readonly Capability[];
  readonly writes: readonly string[];
}

const AGENT: Rights = {
  root: true,
  capabilities: ['NET_ADMIN', 'NET_RAW', 'SYS_ADMIN', 'SYS_PTRACE', 'DAC_OVERRIDE'],
  writes: [
    '/tmp',
    '/run/ztunnel',
    '/run/istio-cni',
    '/run/xtables.lock',
    '/host/opt/cni/bin',
    '/host/etc/cni/net.d',
    '/host/proc',
    '/host/var/run/netns',
    '/host/var/lib/weft',
  ],
};
const PLAIN: Rights = { root: false, capabilities: [], writes: ['/tmp'] };
const RIGHTS: Readonly<Record<string, Rights>> = {
  'node-agent': AGENT,
  // All roles of a node in one process.
  node: AGENT,
  'node-proxy': { ...PLAIN, root: true, capabilities: ['NET_ADMIN', 'NET_RAW', 'SYS_ADMIN'] },
  'control-plane': { ...PLAIN, writes: ['/tmp', '/var/lib/weft/control-plane'] },
  redis: { ...PLAIN, writes: ['/run/weft/redis', '/var/lib/weft/redis'] },
};
/** Mounts of every container, from the runtime and kubelet. */
const GIVEN = /^\/(proc|dev|sys\/fs\/cgroup|etc\/hosts)(\/|$)/;
const SECCOMP_FILTER = '2';

/** Checks what the kernel says of each running container: its user, capabilities, filter of system calls, and where it can write. */
export async function confined(t: ExecutionContext, cluster: TestCluster): Promise<void> {
  const containers = await weftContainers(cluster);
  t.true(containers.length > 5);
  await Promise.all(
    containers.map(async (container) => {
      const { root, capabilities, writes } = RIGHTS[container.name] ?? PLAIN;
      const { status, writable } = await confinementOf(cluster, container);
      const bits = capabilities.reduce((sum, name) => sum + 2 ** NUMBERS[name], 0);
      const found = {
        root: status.get('Uid')?.startsWith('0\t'),
        effective: Number.parseInt(status.get('CapEff') ?? '', 16),
        bounding: Number.parseInt(status.get('CapBnd') ?? '', 16),
        noNewPrivileges: status.get('NoNewPrivs'),
        seccomp: status.get('Seccomp'),
        writable: writable.filter(
          (place) => !GIVEN.test(place) && !writes.some((own) => `${place}/`.startsWith(`${own}/`)),
        ),
      };
      const wanted = { root, effective: bits, bounding: bits, writable: [] };
      t.deepEqual(
        found,
        { ...wanted, noNewPrivileges: '1', seccomp: SECCOMP_FILTER },
        `${container.pod} ${container.name}`,
      );
    }),
  );
}

/** Checks that only pods that use their node's folders need a namespace without Pod Security's restrictions. */
export async function restricted(
  t: ExecutionContext,
  cluster: TestCluster,
  fitting: readonly string[],
): Promise<void> {
  const { admin } = cluster.objects;
  const strict = await cluster.objects.namespace('strict', {
    'pod-security.kubernetes.io/enforce': 'restricted',
  });
  const account = 'stand-in';
  const metadata = { name: account, namespace: strict };
  await cluster.objects.apply({ apiVersion: 'v1', kind: 'ServiceAccount', metadata });
  const pods = await podsOf(cluster, SYSTEM, 'weft', 'app.kubernetes.io/part-of');
  const fits: string[] = [];
  for (const pod of pods) {
    const { name, labels } = pod.metadata;
    const body = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name },
      spec: { ...pod.spec, nodeName: null, serviceAccountName: account, serviceAccount: account },
    };
    try {
      await admin.request({
        method: 'POST',
        path: `/api/v1/namespaces/${strict}/pods`,
        query: { dryRun: 'All' },
        body,
      });
      fits.push(labels?.['app.kubernetes.io/name'] ?? '');
    } catch (error) {
      t.regex(errorText(error), /violates PodSecurity "restricted:latest"/, name);
    }
  }
  t.deepEqual([...new Set(fits)].toSorted(), fitting);
}

const PATCH = `
cd /var/run/secrets/kubernetes.io/serviceaccount
curl -sS --cacert ca.crt -H "Authorization: Bearer $(cat token)" -X PATCH -H 'Content-Type: application/merge-patch+json' \\
  -d '{"metadata":{"annotations":{"ambient.istio.io/redirection":"enabled"}}}' \\
  "https://kubernetes.default.svc$0?dryRun=All"
`;

/** Checks that an agent's own token writes about the pods of its node alone. */
export async function ownNodeOnly(
  t: ExecutionContext,
  cluster: TestCluster,
  namespace: string,
): Promise<void> {
  const agents = await podsOf(cluster, SYSTEM, 'weft-node-agent', 'app.kubernetes.io/name');
  const pods = await podPerNode(cluster, namespace, 'web');
  const containers = await weftContainers(cluster);
  for (const agent of agents) {
    const container = present(
      containers.find(({ pod, name }) => pod === agent.metadata.name && name !== 'redis'),
      'the container of the agent',
    );
    for (const pod of pods) {
      const path = `/api/v1/namespaces/${namespace}/pods/${pod.metadata.name}/status`;
      const answer = JSON.parse(await inContainer(cluster, container, 'sh', '-c', PATCH, path)) as {
        readonly kind: string;
        readonly message?: string;
      };
      const [own, other] = [agent.spec.nodeName ?? '', pod.spec.nodeName ?? ''];
      if (own === other) t.is(answer.kind, 'Pod', answer.message);
      else t.regex(answer.message ?? '', new RegExp(`agent of ${own} may not .* of ${other}`));
    }
  }
}

const MIB = 2 ** 20;

/** Checks that the processes of each container hold no more memory than the container requests, and logs what they hold. */
export async function withinRequests(t: ExecutionContext, cluster: TestCluster): Promise<void> {
  const lines = await Promise.all(
    (await weftContainers(cluster)).map(async (container) => {
      const { held, workingSet } = await memoryOf(cluster, container);
      t.true(held <= container.memoryRequest, `${container.pod} ${container.name} holds ${held}`);
      const figures = [held, workingSet, container.memoryRequest].map((n) => Math.round(n / MIB));
      const [own, working, requested] = figures;
      return `${container.pod} ${container.name}: holds ${own} MiB, working set ${working}, requested ${requested}`;
    }),
  );
  t.log(lines.toSorted().join('\n'));
}

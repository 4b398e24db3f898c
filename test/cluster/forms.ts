/** Installs other forms of the chart than the default on a running cluster. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { CHART, MANIFESTS } from '../kubernetes/support/helm.ts';
import { definitionFiles } from '../kubernetes/support/programs.ts';
import { until } from '../support/until.ts';
import { WEFT_IMAGE } from '../support/weft-image.ts';
import {
  SECRETS,
  makeSecrets,
  offerVolume,
  removeSecrets,
  runServer,
} from './support/central-redis.ts';
import type { TestCluster } from './support/cluster.ts';
import { inContainer } from './support/containers.ts';
import { podsOf, rolledOut } from './support/pods.ts';
import { SYSTEM, installWeft, leave, uninstallWeft } from './support/weft.ts';
import { enrolRunning, resources } from './mesh.ts';
import { confined, restricted } from './security.ts';

const TAINT = 'cni.istio.io/not-ready';
/** Roles that fit Pod Security's level `restricted` where Redis is not the node's own. */
const CENTRAL_FITTING = [
  'weft-ca',
  'weft-cert-fetcher',
  'weft-control-plane',
  'weft-policy-evaluator',
  'weft-xds-ingester',
];
const POLICIES = 'authorizationpolicies.security.istio.io';

/** The cluster, Helm, and namespaces with pods that no mesh has. */
export interface FormPlace {
  readonly cluster: TestCluster;
  readonly helm: string;
  readonly inside: string;
  readonly outside: string;
}

/** Checks a form that is installed: it is confined, running pods enter the mesh, and resources take effect. */
async function works(t: ExecutionContext, { cluster, inside, outside }: FormPlace): Promise<void> {
  await confined(t, cluster);
  await enrolRunning(t, cluster, inside);
  await resources(t, cluster, { inside, outside });
}

/** Checks the form with all roles of a node in one pod, on nodes that let no pod in until a mesh is ready there. */
export async function compact(t: ExecutionContext, place: FormPlace): Promise<void> {
  const { cluster, helm, inside } = place;
  await leave(cluster, inside);
  await cluster.kubectl('taint', 'nodes', '--all', `${TAINT}:NoSchedule`);
  await installWeft(cluster, helm, ['profile=compact']);
  await until(async () => !(await cluster.kubectl('get', 'nodes', '-o', 'yaml')).includes(TAINT), {
    what: 'the nodes let pods in',
  });
  await works(t, place);
  await uninstallWeft(cluster, helm);
}

/** Checks the form with one Redis that the chart runs. */
export async function sharedRedis(t: ExecutionContext, place: FormPlace): Promise<void> {
  const { cluster, helm, inside } = place;
  const host = `weft-redis.${SYSTEM}.svc`;
  await leave(cluster, inside);
  await makeSecrets(cluster, [SYSTEM], host);
  await offerVolume(cluster);
  const secrets = [`redis.usersSecret=${SECRETS.users}`, `redis.tlsSecret=${SECRETS.tls}`];
  await installWeft(cluster, helm, ['redis.mode=shared', ...secrets]);
  await restricted(t, cluster, [...CENTRAL_FITTING, 'weft-redis'].toSorted());
  await works(t, place);
  await ownKeysOnly(t, cluster, host);
  await uninstallWeft(cluster, helm);
  await removeSecrets(cluster);
}

/** Checks the form with a Redis that is not the chart's. */
export async function externalRedis(t: ExecutionContext, place: FormPlace): Promise<void> {
  const { cluster, helm, inside } = place;
  const store = await cluster.objects.namespace('store');
  const host = `redis.${store}.svc`;
  await leave(cluster, inside);
  await makeSecrets(cluster, [SYSTEM, store], host);
  await runServer(cluster, store);
  const secrets = [`redis.usersSecret=${SECRETS.users}`, `redis.tlsSecret=${SECRETS.tls}`];
  const values = ['redis.mode=external', `redis.url=rediss://${host}:6379`, ...secrets];
  await installWeft(cluster, helm, values);
  await restricted(t, cluster, CENTRAL_FITTING);
  await works(t, place);
  await ownKeysOnly(t, cluster, host);
  await uninstallWeft(cluster, helm);
  await removeSecrets(cluster);
}

/** Checks by the password of each node's agent that it reads its node's keys and is refused those of another. */
async function ownKeysOnly(t: ExecutionContext, cluster: TestCluster, host: string): Promise<void> {
  const nodes = cluster.network.nodes.map(({ name }) => name);
  const client = `redis-cli -e --tls --cacert /etc/weft/redis-roots/ca.crt -h ${host}`;
  const login = `--no-auth-warning --user node-agent.$NODE_NAME --pass "$(cat /etc/weft/redis-user/password)"`;
  for (const agent of await podsOf(cluster, SYSTEM, 'weft-node-agent', 'app.kubernetes.io/name')) {
    const container = { pod: agent.metadata.name, name: 'node-agent' };
    const count = (node: string): Promise<string> => {
      const command = `${client} ${login} hlen 'weft:{${node}}:state:enrolments:data'`;
      return inContainer(cluster, container, 'sh', '-c', `${command} >&2`);
    };
    for (const node of nodes) {
      if (node === agent.spec.nodeName) await t.notThrowsAsync(count(node), node);
      else t.regex(errorText(await t.throwsAsync(count(node))), /NOPERM/, node);
    }
  }
}

/** Checks the installation by kubectl alone, with a definition that another mesh left, others that come later, and its removal. */
export async function withoutHelm(t: ExecutionContext, place: FormPlace): Promise<void> {
  const { cluster, inside } = place;
  await leave(cluster, inside);
  await cluster.kubectl('delete', 'crds', '--all');
  await cluster.kubectl('delete', 'namespace', SYSTEM);
  const definitions = join(CHART, 'crds');
  const found = join(cluster.folder, 'found.yaml');
  const documents = (await readFile(join(definitions, 'istio.yaml'), 'utf8')).split(/^---\n/m);
  await writeFile(found, documents.find((text) => text.includes(`name: ${POLICIES}`)) ?? '');
  await cluster.kubectl('create', '-f', found);
  await cluster.kubectl('label', 'crd', POLICIES, 'owner=another');
  const manifests = join(cluster.folder, 'weft.yaml');
  const text = await readFile(MANIFESTS, 'utf8');
  await writeFile(manifests, text.replaceAll(/image: "weft:[^"]+"/g, `image: "${WEFT_IMAGE}"`));
  await cluster.kubectl('apply', '-f', manifests);
  const list = ['get', 'deployments,daemonsets', '-o', 'name'];
  const workloads = (await cluster.kubectl('-n', SYSTEM, ...list)).trim().split('\n');
  for (const workload of workloads) await rolledOut(cluster, SYSTEM, workload);
  const refusal = await t.throwsAsync(cluster.kubectl('create', '-f', definitions));
  t.regex(errorText(refusal), /"authorizationpolicies\.security\.istio\.io" already exists/);
  await works(t, place);
  await gatewaysLater(cluster, place.outside);
  // As docs/kubernetes.md has it: the agents go while they have their rights.
  const agents = ['daemonset', 'weft-node-agent', '--cascade=foreground'];
  await cluster.kubectl('-n', SYSTEM, 'delete', ...agents);
  await cluster.kubectl('delete', '-f', manifests, '--ignore-not-found');
  const left = await cluster.kubectl('get', 'crd', '-l', 'owner=another', '-o', 'name');
  t.is(left.trim(), `customresourcedefinition.apiextensions.k8s.io/${POLICIES}`);
  await cluster.kubectl('get', 'crd', 'serviceentries.networking.istio.io');
}

/** Defines gateways, and waits until the control plane judges a Service by one. */
async function gatewaysLater(cluster: TestCluster, namespace: string): Promise<void> {
  for (const file of await definitionFiles()) {
    if (file.includes('gateway')) await cluster.kubectl('create', '-f', file);
  }
  await cluster.kubectl('wait', '--for=condition=Established', 'crds', '--all', '--timeout=60s');
  await cluster.kubectl('-n', namespace, 'label', 'service', 'web', 'istio.io/use-waypoint=near');
  await cluster.objects.apply({
    apiVersion: 'gateway.networking.k8s.io/v1',
    kind: 'Gateway',
    metadata: { name: 'near', namespace },
    spec: {
      gatewayClassName: 'istio-waypoint',
      listeners: [{ name: 'mesh', port: 15_008, protocol: 'HBONE' }],
    },
  });
  const message = 'jsonpath={.status.conditions[?(@.type=="istio.io/WaypointBound")].message}';
  await until(
    async () =>
      /is not ready/.test(
        await cluster.kubectl('-n', namespace, 'get', 'service', 'web', '-o', message),
      ),
    { what: 'the control plane knows the gateway' },
  );
}

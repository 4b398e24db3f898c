/** A mesh on a cluster as commands read it: pods from the API server, actors through port forwards. */
import * as z from 'zod';
import type { QueueCounts, TableName } from '../../../lib/bus/contract.ts';
import { Slots } from '../../../lib/async/slots.ts';
import { systemClock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import { explainResultSchema } from '../../../lib/policy/explain.ts';
import type { ActorName } from '../../local-mesh/actors.ts';
import { askEnrolments } from '../../local-mesh/mesh-client.ts';
import type { AdminServers } from '../../local-mesh/mesh-client.ts';
import type { PodLine } from '../../local-mesh/supervisor-api.ts';
import { askJson } from '../../local-mesh/unix-http.ts';
import type { DialledServer } from '../../local-mesh/unix-http.ts';
import { known } from '../explain.ts';
import { fromEachNode } from '../mesh.ts';
import type { Mesh, Rows } from '../mesh.ts';
import type { ClusterOptions } from '../output.ts';
import { openCluster } from './access.ts';
import type { ClusterAccess } from './access.ts';
import { forwardPort } from '../../../lib/kubernetes/forwarded-port.ts';
import { FORWARD_WAIT_MS, MAX_FORWARDS, MAX_WAITING_FORWARDS } from './limits.ts';
import { readList } from '../../../lib/kubernetes/read-list.ts';
import { hosts, nodesOf, podsOfRole, readWeftPods } from './weft-pods.ts';
import type { WeftPod } from './weft-pods.ts';

/** The port of every role's admin server, on its pod's loopback (`weft.env` of the chart). */
const ADMIN_PORT = 15_018;
/** The mesh enrols pods under this annotation, Istio's and Weft's agents alike. */
const REDIRECTION = 'ambient.istio.io/redirection';

/** A mesh on a cluster. */
export interface ClusterMesh extends Mesh {
  readonly access: ClusterAccess;
  readonly weftPods: readonly WeftPod[];
  /** The way to the roles in a pod. */
  adminOf(pod: WeftPod): DialledServer;
}

/** Runs `work` with the mesh of a cluster, and closes the connections. */
export async function withClusterMesh<T>(
  options: ClusterOptions,
  work: (mesh: ClusterMesh) => Promise<T>,
): Promise<T> {
  const access = await openCluster(options);
  try {
    return await work(clusterMesh(access, await readWeftPods(access)));
  } finally {
    access.client.close();
  }
}

function clusterMesh(access: ClusterAccess, weftPods: readonly WeftPod[]): ClusterMesh {
  const { client, namespace } = access;
  const forwards = new Slots(() => MAX_FORWARDS, systemClock);
  const adminOf = ({ name }: WeftPod): DialledServer => ({
    name: `pod ${namespace}/${name}`,
    async dial(timeoutMs) {
      const leave = await forwards.take({
        limitMs: FORWARD_WAIT_MS,
        maxWaiting: MAX_WAITING_FORWARDS,
        failure: (why) => new MeshError('KUBERNETES_UNAVAILABLE', `a way to ${name}: ${why}`),
      });
      try {
        const stream = await forwardPort(client, { namespace, pod: name, port: ADMIN_PORT });
        return stream.setTimeout(timeoutMs).once('close', leave);
      } catch (error) {
        leave();
        throw error;
      }
    },
  });
  const find = (role: ActorName, node: string | null): readonly WeftPod[] => {
    const found = podsOfRole(weftPods, role, node);
    if (found.length > 0) return found;
    const where = node === null ? namespace : `${namespace} on ${node}`;
    throw new MeshError('STATE_UNAVAILABLE', `no pod with the role ${role} runs in ${where}`);
  };
  const servers: AdminServers = {
    one: async (role, node) => adminOf(find(role, node)[0] as WeftPod),
    all: async (role, node) => find(role, node).map(adminOf),
  };
  const nodes = nodesOf(weftPods);
  const hasAgents = weftPods.some((pod) => hosts(pod, 'node-agent'));
  return {
    access,
    weftPods,
    adminOf,
    local: null,
    nodes,
    hasAgents,
    servers,
    pods: (namespaces) => readPods(access, namespaces),
    async enrolments(node) {
      if (hasAgents) return askEnrolments(servers, node);
      // Istio's agent tells by annotation alone.
      const pods = await readPods(access, undefined, node);
      return pods
        .filter(({ ambient }) => ambient)
        .map(({ uid }) => ({ podUid: uid, state: 'enabled' }));
    },
    async tables<Name extends TableName>(names: readonly Name[]) {
      return firstEvaluator(servers, async (socket) => {
        const read: [Name, Rows][] = [];
        for (const table of names) {
          const path = `/policy-evaluator/rows?table=${table}`;
          const { rows } = await askJson<{ rows: readonly [string, string][] }>({ socket, path });
          const decoded = rows.map(([key, text]) => [key, Buffer.from(text, 'base64')] as const);
          read.push([table, new Map(decoded)]);
        }
        return Object.fromEntries(read) as Record<Name, Rows>;
      });
    },
    queues: () => readQueues({ nodes, servers, weftPods }),
    explain: (request) =>
      firstEvaluator(servers, async (socket) => {
        const question = { socket, method: 'POST', path: '/policy-evaluator/explain' } as const;
        return known(explainResultSchema.parse(await askJson({ ...question, body: request })));
      }),
  };
}

/** Asks one evaluator after another until one answers: each knows the whole mesh. */
async function firstEvaluator<T>(
  servers: AdminServers,
  ask: (socket: Awaited<ReturnType<AdminServers['one']>>) => Promise<T>,
): Promise<T> {
  let last: unknown = null;
  for (const socket of await servers.all('policy-evaluator', null)) {
    try {
      return await ask(socket);
    } catch (error) {
      if (!isCode(error, 'STATE_UNAVAILABLE', 'KUBERNETES_UNAVAILABLE')) throw error;
      last = error;
    }
  }
  throw last;
}

/** Reads the queues of each Redis: that of each node, or the one of all. */
async function readQueues({
  nodes,
  servers,
  weftPods,
}: Pick<ClusterMesh, 'nodes' | 'servers' | 'weftPods'>): ReturnType<Mesh['queues']> {
  const ask = async (role: ActorName, node: string | null): Promise<readonly QueueCounts[]> => {
    const socket = await servers.one(role, node);
    return (await askJson<{ queues: readonly QueueCounts[] }>({ socket, path: `/${role}/queues` }))
      .queues;
  };
  const ofNodes = await fromEachNode({ nodes }, 'the certificate fetcher', (node) =>
    ask('cert-fetcher', node),
  );
  const perNode = weftPods.some((pod) => hosts(pod, 'policy-evaluator') && pod.perNode);
  const ofMesh = perNode
    ? await fromEachNode({ nodes }, 'the policy evaluator', async (node) =>
        (await ask('policy-evaluator', node)).map((line) => ({
          ...line,
          name: `${line.name}.${node}`,
        })),
      )
    : { lines: await ask('policy-evaluator', null), warnings: [] };
  return {
    lines: [...ofMesh.lines, ...ofNodes.lines],
    warnings: [...ofMesh.warnings, ...ofNodes.warnings],
  };
}

const podSchema = z.looseObject({
  metadata: z.looseObject({
    uid: z.string(),
    namespace: z.string(),
    name: z.string(),
    annotations: z.record(z.string(), z.string()).default({}),
  }),
  spec: z.looseObject({
    nodeName: z.string().default(''),
    serviceAccountName: z.string().default('default'),
    hostNetwork: z.boolean().default(false),
  }),
  status: z.looseObject({
    phase: z.string().default('Pending'),
    podIPs: z.array(z.looseObject({ ip: z.string() })).default([]),
  }),
});

/** Reads the running pods with a network of their own. */
async function readPods(
  { client }: ClusterAccess,
  namespaces: readonly string[] | undefined,
  node?: string,
): Promise<readonly PodLine[]> {
  const places =
    namespaces === undefined
      ? ['/api/v1/pods']
      : namespaces.map((name) => `/api/v1/namespaces/${encodeURIComponent(name)}/pods`);
  const query = node === undefined ? {} : { fieldSelector: `spec.nodeName=${node}` };
  const lists = await Promise.all(places.map((path) => readList(client, path, podLine, query)));
  return lists.flat();
}

function podLine(object: unknown): PodLine | null {
  const { metadata, spec, status } = podSchema.parse(object);
  const ips = status.podIPs.map(({ ip }) => ip);
  const [ip] = ips;
  if (status.phase !== 'Running' || spec.hostNetwork || ip === undefined) return null;
  const { uid, namespace, name, annotations } = metadata;
  return {
    uid,
    namespace,
    name,
    node: spec.nodeName,
    ip,
    ips,
    netns: '',
    serviceAccount: spec.serviceAccountName,
    phase: 'Running',
    ambient: annotations[REDIRECTION] === 'enabled',
  };
}

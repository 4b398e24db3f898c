/** The status of a mesh on a cluster: what runs, and how each node does. */
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import { askCertificates, askEnrolments } from '../../local-mesh/mesh-client.ts';
import { askJson } from '../../local-mesh/unix-http.ts';
import { firstExpiry, expiryLine } from '../first-expiry.ts';
import type { FirstExpiry } from '../first-expiry.ts';
import { duration } from '../status-lines.ts';
import { textTable } from '../text-table.ts';
import type { ClusterMesh } from './cluster-mesh.ts';
import type { WeftPod } from './weft-pods.ts';

/** A pod of Weft in the status. */
export interface RoleLine {
  readonly role: string;
  readonly node: string | null;
  readonly pod: string;
  readonly version: string;
  /** `ready`, `starting`, `draining` or the reason why a container does not run. */
  readonly state: string;
  /** The parts that a starting role waits for. */
  readonly pending: readonly string[];
  readonly restarts: number;
  readonly ageSeconds: number;
}

/** A node in the status. The counts are null where its agent or its proxy does not tell. */
export interface NodeLine {
  readonly name: string;
  readonly enrolled: number | null;
  readonly notEnrolled: number | null;
  /** Times that rules or listeners of pods were missing and were made again, since the agent started. */
  readonly driftRepairs: number | null;
  readonly firstExpiry: FirstExpiry | null;
  readonly problems: readonly string[];
}

/** Answer of `weft status -o json` on a cluster. */
export interface ClusterStatus {
  readonly namespace: string;
  readonly ready: boolean;
  readonly versions: readonly string[];
  readonly nodes: readonly NodeLine[];
  readonly roles: readonly RoleLine[];
}

/** Asks every node. Throws KUBERNETES_REFUSED when the user may not forward ports. */
export async function readClusterStatus(mesh: ClusterMesh, nowMs: number): Promise<ClusterStatus> {
  const [nodes, roles] = await Promise.all([
    Promise.all(mesh.nodes.map((node) => nodeLine(mesh, node, nowMs))),
    Promise.all(mesh.weftPods.map((pod) => roleLine(mesh, pod, nowMs))),
  ]);
  const staying = roles.filter(({ state }) => state !== 'draining');
  return {
    namespace: mesh.access.namespace,
    ready:
      staying.every(({ state }) => state === 'ready') &&
      nodes.every(({ problems }) => problems.length === 0),
    versions: [...new Set(roles.map(({ version }) => version))].sort(),
    nodes,
    roles: [...roles].sort((a, b) => order(a).localeCompare(order(b))),
  };
}

function order({ role, node, pod }: RoleLine): string {
  return `${role}\0${node ?? ''}\0${pod}`;
}

async function nodeLine(mesh: ClusterMesh, node: string, nowMs: number): Promise<NodeLine> {
  const problems: string[] = [];
  const attempt = async <T>(work: () => Promise<T>): Promise<T | null> => {
    try {
      return await work();
    } catch (error) {
      if (isCode(error, 'KUBERNETES_REFUSED')) throw error;
      problems.push(errorText(error));
      return null;
    }
  };
  const [pods, certificates] = await Promise.all([
    mesh.hasAgents ? attempt(() => askEnrolments(mesh.servers, node)) : null,
    attempt(() => askCertificates(mesh.servers, node)),
  ]);
  const enrolled = pods?.filter(({ state }) => state === 'enabled').length ?? null;
  return {
    name: node,
    enrolled,
    notEnrolled: pods === null || enrolled === null ? null : pods.length - enrolled,
    driftRepairs: pods?.reduce((sum, { driftRepairs }) => sum + driftRepairs, 0) ?? null,
    firstExpiry: certificates === null ? null : firstExpiry(certificates, nowMs),
    problems,
  };
}

async function roleLine(mesh: ClusterMesh, pod: WeftPod, nowMs: number): Promise<RoleLine> {
  const { role, node, version, restarts, createdAt } = pod;
  const state = pod.leaving ? 'draining' : pod.ready ? 'ready' : (pod.waits ?? 'starting');
  return {
    role,
    node,
    pod: pod.name,
    version,
    state,
    pending: state === 'starting' && pod.running ? await pendingOf(mesh, pod) : [],
    restarts,
    ageSeconds: Math.max(0, Math.floor((nowMs - Date.parse(createdAt)) / 1_000)),
  };
}

async function pendingOf(mesh: ClusterMesh, pod: WeftPod): Promise<readonly string[]> {
  if (pod.role === 'redis') return [];
  try {
    const { actors } = await askJson<{ actors: readonly { pending: readonly string[] }[] }>({
      socket: mesh.adminOf(pod),
      path: '/status',
    });
    return actors.flatMap(({ pending }) => pending);
  } catch (error) {
    if (isCode(error, 'KUBERNETES_REFUSED')) throw error;
    return [errorText(error)];
  }
}

/** The status for people. */
export function clusterStatusLines(status: ClusterStatus): readonly string[] {
  const { namespace, ready, versions, nodes, roles } = status;
  const expiries = nodes.flatMap(({ firstExpiry: one }) => (one === null ? [] : [one]));
  const [first] = expiries.sort((a, b) => a.hours - b.hours);
  const several =
    versions.length > 1
      ? [`several versions run: ${versions.join(', ')}; an upgrade is not finished`]
      : [];
  return [
    `release in ${namespace}: ${ready ? 'ready' : 'not ready'}, version ${versions.join(', ')}`,
    '',
    ...textTable(
      ['NODE', 'ENROLLED', 'NOT ENROLLED', 'REPAIRED', 'FIRST EXPIRY'],
      nodes.map((node) => [
        node.name,
        countText(node.enrolled),
        countText(node.notEnrolled),
        countText(node.driftRepairs),
        node.firstExpiry === null ? '-' : `${node.firstExpiry.hours} h`,
      ]),
    ),
    '',
    ...textTable(
      ['ROLE', 'NODE', 'POD', 'VERSION', 'STATE', 'RESTARTS', 'AGE'],
      roles.map((line) => [
        line.role,
        line.node ?? '-',
        line.pod,
        line.version,
        line.pending.length === 0 ? line.state : `${line.state} (${line.pending.join(', ')})`,
        String(line.restarts),
        duration(line.ageSeconds),
      ]),
    ),
    ...several,
    ...(first === undefined ? [] : ['', expiryLine(first)]),
    ...nodes.flatMap(({ name, problems }) => problems.map((problem) => `${name}: ${problem}`)),
  ];
}

function countText(count: number | null): string {
  return count === null ? '-' : String(count);
}

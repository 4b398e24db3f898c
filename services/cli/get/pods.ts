import { compareText } from '../../../lib/collections/compare.ts';
import { enrolmentSchema } from '../../../lib/state/enrolment.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { askEnrolments, askPods } from '../../local-mesh/mesh-client.ts';
import type { PodLine as RunningPod } from '../../local-mesh/supervisor-api.ts';
import type { RunningMesh } from '../running-mesh.ts';
import type { ResourceKind } from './kinds.ts';

/** One line of `weft get pods`; docs/cli.md describes it. */
export type PodLine = ReturnType<typeof podLines>[number];

/** `weft get pods`, by namespace and name. */
export const kind: ResourceKind<PodLine> = {
  columns: [
    ['NAMESPACE', (line) => line.namespace],
    ['NAME', (line) => line.name],
    ['NODE', (line) => line.node],
    ['IP', (line) => line.ip],
    ['SERVICE ACCOUNT', (line) => line.serviceAccount],
    ['ENROLLED', (line) => (line.enrolled ? 'yes' : 'no')],
    ['NETNS', (line) => line.netns],
  ],
  read: async (mesh) => {
    const warnings: string[] = [];
    const [pods, ...lists] = await Promise.all([
      askPods(mesh.paths),
      ...mesh.plan.nodes.map(({ name }) => enrolledUids(mesh, name, warnings)),
    ]);
    return { lines: podLines(pods, new Set(lists.flat())), warnings };
  },
};

/** The lines of the running pods; `enrolled` holds the uids of the enrolled ones. */
export function podLines(pods: readonly RunningPod[], enrolled: ReadonlySet<string>) {
  return pods
    .map(({ uid, namespace, name, node, ip, netns, serviceAccount }) => ({
      namespace,
      name,
      node,
      ip,
      netns,
      serviceAccount,
      enrolled: enrolled.has(uid),
    }))
    .sort((left, right) => compareText(sortKey(left), sortKey(right)));
}

function sortKey({ namespace, name }: { namespace: string; name: string }): string {
  return `${namespace}\0${name}`;
}

/** Asks the node's agent; while it is away, reads its table. */
async function enrolledUids(
  mesh: RunningMesh,
  node: string,
  warnings: string[],
): Promise<readonly string[]> {
  try {
    const lines = await askEnrolments(mesh.paths, node);
    return lines.filter((line) => line.state === 'enabled').map((line) => line.podUid);
  } catch (error) {
    try {
      return await storedUids(mesh, node);
    } catch (second) {
      warnings.push(
        `whether pods of ${node} are enrolled is unknown: ${errorText(error)}; ${errorText(second)}`,
      );
      return [];
    }
  }
}

async function storedUids(mesh: RunningMesh, node: string): Promise<readonly string[]> {
  const { withMeshBus, readTable } = await import('../mesh-bus.ts');
  const rows = await withMeshBus(mesh.paths, (bus) => readTable(bus, 'enrolments', { node }));
  return [...rows.values()]
    .map((row) => enrolmentSchema.parse(JSON.parse(Buffer.from(row).toString('utf8'))))
    .filter((enrolment) => enrolment.state === 'enabled')
    .map((enrolment) => enrolment.podUid);
}

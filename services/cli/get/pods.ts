import { compareText } from '../../../lib/collections/compare.ts';
import type { PodLine as RunningPod } from '../../local-mesh/supervisor-api.ts';
import { fromEachNode } from '../mesh.ts';
import type { ResourceKind } from './kinds.ts';

/** One line of `weft get pods`; docs/cli.md describes it. */
export type PodLine = ReturnType<typeof podLines>[number];

/** `weft get pods`, by namespace and name. */
export const kind: ResourceKind<PodLine> = {
  columns: [
    'namespace',
    'name',
    'node',
    'ip',
    'serviceAccount',
    ['ENROLLED', (line) => (line.enrolled ? 'yes' : 'no')],
    'netns',
  ],
  read: async (mesh) => {
    // One after the other, so that a user who may do neither is always told of the same right.
    const pods = await mesh.pods();
    const enrolled = await fromEachNode(mesh, 'the node agent', (node) => mesh.enrolments(node));
    const uids = enrolled.lines
      .filter(({ state }) => state === 'enabled')
      .map(({ podUid }) => podUid);
    return { lines: podLines(pods, new Set(uids)), warnings: enrolled.warnings };
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

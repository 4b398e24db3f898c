/** Sends the same request to every node. */
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { RunningMesh } from '../running-mesh.ts';
import type { Found } from './kinds.ts';

/** The answers of all nodes; a node without an answer becomes a warning. */
export async function fromEachNode<Line>(
  mesh: RunningMesh,
  who: string,
  question: (node: string) => Promise<readonly Line[]>,
): Promise<Found<Line>> {
  const warnings: string[] = [];
  const lists = await Promise.all(
    mesh.plan.nodes.map(async ({ name }) => {
      try {
        return await question(name);
      } catch (error) {
        warnings.push(`${who} of ${name} is away, its part is missing: ${errorText(error)}`);
        return [];
      }
    }),
  );
  return { lines: lists.flat(), warnings };
}

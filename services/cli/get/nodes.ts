/** Sends the same request to every node. */
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import type { Found, Mesh } from '../mesh.ts';

/** The answers of all nodes; a node without an answer becomes a warning. Throws KUBERNETES_REFUSED, which is so for every node. */
export async function fromEachNode<Line>(
  { nodes }: Pick<Mesh, 'nodes'>,
  who: string,
  question: (node: string) => Promise<readonly Line[]>,
): Promise<Found<Line>> {
  const warnings: string[] = [];
  const lists = await Promise.all(
    nodes.map(async (name) => {
      try {
        return await question(name);
      } catch (error) {
        if (isCode(error, 'KUBERNETES_REFUSED')) throw error;
        warnings.push(`${who} of ${name} is away, its part is missing: ${errorText(error)}`);
        return [];
      }
    }),
  );
  return { lines: lists.flat(), warnings };
}

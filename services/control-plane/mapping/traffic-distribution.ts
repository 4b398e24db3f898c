/** Which endpoints of a service come first (docs/spec/istiod-ambient.md §1.4). Pure. */
import type { RoutingScope } from '../../../lib/state/model.ts';
import type { Mesh } from './mesh.ts';

/** The annotation of services and namespaces. */
export const DISTRIBUTION_ANNOTATION = 'networking.istio.io/traffic-distribution';

const SAME_ZONE: readonly RoutingScope[] = ['NETWORK', 'REGION', 'ZONE'];
const SAME_NODE: readonly RoutingScope[] = ['NETWORK', 'REGION', 'ZONE', 'SUBZONE', 'NODE'];
const DISTRIBUTIONS: ReadonlyMap<string, readonly RoutingScope[]> = new Map([
  ['preferclose', SAME_ZONE],
  ['prefersamezone', SAME_ZONE],
  ['prefersamenode', SAME_NODE],
]);

/**
 * The scopes in which endpoints are preferred: those of the first word that is there, else the mesh's own. A word that nobody
 * knows prefers none.
 */
export function preferredScopes(
  words: readonly (string | undefined)[],
  mesh: Mesh,
): readonly RoutingScope[] {
  const word = words.map((text) => text?.trim().toLowerCase() ?? '').find((text) => text !== '');
  return word === undefined ? mesh.failover : (DISTRIBUTIONS.get(word) ?? []);
}

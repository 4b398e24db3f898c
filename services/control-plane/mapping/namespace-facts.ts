import type { NamespaceObject } from '../manifests/kinds.ts';
import { matchesSelector } from '../../../lib/kubernetes/label-selector.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import type { Mesh } from './mesh.ts';

/** The part of a namespace that its objects depend on. */
export interface NamespaceFacts {
  readonly labels: Labels;
  readonly annotations: Labels;
  /** False when the mesh's discovery selectors leave the namespace out. */
  readonly discovered: boolean;
}

const NOTHING: Labels = {};

/** The facts of a namespace. The system and the root namespace are always part of the mesh: their policies hold everywhere. */
export function namespaceFacts(
  mesh: Mesh,
  name: string,
  object: NamespaceObject | undefined,
  system: string,
): NamespaceFacts {
  const labels = object?.metadata.labels ?? NOTHING;
  return {
    labels,
    annotations: object?.metadata.annotations ?? NOTHING,
    discovered:
      mesh.discovery === null ||
      name === system ||
      name === mesh.policies.rootNamespace ||
      mesh.discovery.some((selector) => matchesSelector(selector, labels)),
  };
}

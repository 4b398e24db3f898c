import type { NamespaceObject } from '../manifests/kinds.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import { isDiscovered } from '../../../lib/mesh-config/discovery.ts';
import type { Mesh } from './mesh.ts';

/** The part of a namespace that its objects depend on. */
export interface NamespaceFacts {
  readonly labels: Labels;
  readonly annotations: Labels;
  /** False when the mesh's discovery selectors leave the namespace out. */
  readonly discovered: boolean;
}

const NOTHING: Labels = {};

/** The facts of a namespace. */
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
    discovered: isDiscovered(
      { selectors: mesh.discovery, always: [system, mesh.policies.rootNamespace] },
      name,
      labels,
    ),
  };
}

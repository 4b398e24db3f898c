import { matchesSelector } from '../kubernetes/label-selector.ts';
import type { LabelSelector, Labels } from '../kubernetes/label-selector.ts';

/** The part of a MeshConfig that tells which namespaces belong to the mesh. */
export interface Discovery {
  /** A namespace that one of them selects belongs to the mesh; without any, all do. */
  readonly selectors: readonly LabelSelector[];
  /** The system and the root namespace: they always belong to it, because their policies and roots hold everywhere. */
  readonly always: readonly string[];
}

/** True when a namespace with these labels belongs to the mesh. */
export function isDiscovered(
  { selectors, always }: Discovery,
  namespace: string,
  labels: Labels,
): boolean {
  return (
    selectors.length === 0 ||
    always.includes(namespace) ||
    selectors.some((selector) => matchesSelector(selector, labels))
  );
}

import type { Graph } from '../../../lib/derived/graph.ts';
import { Source } from '../../../lib/derived/source.ts';
import { KINDS, isNamespaced } from '../manifests/kinds.ts';
import type { Kind, KubeObject, ObjectOf } from '../manifests/kinds.ts';

/** The objects of each kind, by {@link nameKey}. */
export type ObjectSources = { readonly [K in Kind]: Source<ObjectOf<K>> };

/** Makes a source for each kind. */
export function objectSources(graph: Graph): ObjectSources {
  return Object.fromEntries(
    KINDS.map((kind) => [kind, new Source<KubeObject>(graph)]),
  ) as unknown as ObjectSources;
}

/** The key of an object among those of its kind: `namespace/name`, or `name` for kinds without a namespace. */
export function nameKey(kind: Kind, namespace: string, name: string): string {
  return isNamespaced(kind) ? `${namespace}/${name}` : name;
}

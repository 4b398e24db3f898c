/** Status conditions of the same objects: those that Weft's control plane would write, and those that istiod has written. */
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import { kindResources } from '../../../services/control-plane/manifests/kinds.ts';
import type { Kind } from '../../../services/control-plane/manifests/kinds.ts';
import { OWNED_CONDITIONS } from '../../../services/control-plane/mapping/object-status.ts';
import type { Cluster } from '../../kubernetes/support/cluster.ts';
import type { TestControlPlane } from '../../kubernetes/support/control-plane.ts';

/** `Kind/name type` → status and reason, sorted. The texts are each control plane's own. */
export type Conditions = Readonly<Record<string, string>>;

/** The conditions of the objects of a namespace. */
export type ConditionsIn = (namespace: string) => Conditions;

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
}

interface Found extends Condition {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

/** Reads the conditions that Weft would write. */
export async function plannedConditions(plane: TestControlPlane): Promise<ConditionsIn> {
  const { conditions } = (await plane.page('/conditions')) as {
    readonly conditions: readonly Found[];
  };
  return byNamespace(conditions);
}

/** Reads the conditions of the same types that objects have. */
export async function writtenConditions(cluster: Cluster): Promise<ConditionsIn> {
  const found = Object.entries(OWNED_CONDITIONS).map(async ([kind, owned]) => {
    const { group, version, plural, namespaced } = kindResources[kind as Kind];
    const path = resourcePath({ group, versions: [version], plural, namespaced });
    const { items } = (await cluster.admin.get(path)) as {
      readonly items: readonly {
        readonly metadata: { readonly namespace: string; readonly name: string };
        readonly status?: { readonly conditions?: readonly Condition[] };
      }[];
    };
    return items.flatMap(({ metadata: { namespace, name }, status }) =>
      (status?.conditions ?? [])
        .filter(({ type }) => owned.includes(type))
        .map((condition) => ({ ...condition, kind, namespace, name })),
    );
  });
  return byNamespace((await Promise.all(found)).flat());
}

/**
 * Changes an annotation of the objects of a namespace for which `had` holds nothing, but `wanted` does. Istiod gives a status up when five
 * attempts within a second have failed, as they do while the API server prepares a new resource, and writes it at the object's next change.
 */
export async function provokeMissing(
  cluster: Cluster,
  namespace: string,
  { wanted, had }: { readonly wanted: Conditions; readonly had: Conditions },
): Promise<void> {
  const objectsOf = (conditions: Conditions): string[] =>
    Object.keys(conditions).map((key) => key.split(' ')[0] ?? '');
  const written = new Set(objectsOf(had));
  for (const missing of new Set(objectsOf(wanted).filter((object) => !written.has(object)))) {
    const [kind = '', name = ''] = missing.split('/');
    const { group, version, plural, namespaced } = kindResources[kind as Kind];
    await cluster.admin.request({
      method: 'PATCH',
      path: resourcePath({ group, versions: [version], plural, namespaced }, { namespace, name }),
      contentType: 'application/merge-patch+json',
      body: { metadata: { annotations: { 'test.weft.io/provoked': new Date().toISOString() } } },
    });
  }
}

function byNamespace(found: readonly Found[]): ConditionsIn {
  const groups = Map.groupBy(found, ({ namespace }) => namespace);
  return (namespace) => {
    const entries = (groups.get(namespace) ?? []).map(
      ({ kind, name, type, status, reason }) =>
        [`${kind}/${name} ${type}`, `${status} ${reason}`] as const,
    );
    return Object.fromEntries(entries.toSorted(([left], [right]) => (left < right ? -1 : 1)));
  };
}

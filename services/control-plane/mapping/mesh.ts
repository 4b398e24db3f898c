/** The settings of the mesh as they are in force: of the environment, overlaid by the MeshConfig. */
import type { RoutingScope } from '../../../lib/state/model.ts';
import { LOCALITY_SCOPES } from './mesh-config.ts';
import type { MeshConfig } from './mesh-config.ts';
import { matchesSelector } from '../../../lib/kubernetes/label-selector.ts';
import type { LabelSelector, Labels } from '../../../lib/kubernetes/label-selector.ts';
import type { MeshSettings } from './settings.ts';

/** The visibility of a service: to the whole mesh, to its own namespace, or to nobody. */
export type Visibility = 'PUBLIC' | 'NAMESPACE' | 'NONE';

/** Everything that holds for the whole mesh. */
export interface Mesh extends MeshSettings {
  /** The network of this cluster; empty when it has none. */
  readonly network: string;
  /** Namespaces that match one of them are part of the mesh; without any, all are. */
  readonly discovery: readonly LabelSelector[];
  /** The scopes of a service that names no traffic distribution; empty prefers no endpoint. */
  readonly failover: readonly RoutingScope[];
  /** The visibility of ServiceEntries without `exportTo`. */
  readonly exportTo: Visibility;
  readonly entryVisibility: MeshConfig['serviceEntryVisibility'] | null;
}

/** The mesh of these settings. */
export function meshOf(settings: MeshSettings, config: MeshConfig, network: string): Mesh {
  const trustDomain = config.trustDomain ?? settings.trustDomain;
  const { localityLbSetting: locality } = config;
  const labels = locality?.enabled === false ? [] : (locality?.failoverPriority ?? []);
  return {
    ...settings,
    trustDomain,
    policies: {
      ...settings.policies,
      rootNamespace: config.rootNamespace ?? settings.policies.rootNamespace,
      trustDomains: [trustDomain, ...(config.trustDomainAliases ?? [])],
    },
    network,
    discovery: config.discoverySelectors ?? [],
    failover: labels
      .map((label) => LOCALITY_SCOPES.get(label))
      .filter((scope) => scope !== undefined),
    exportTo: visibilityOfScopes(config.defaultServiceExportTo) ?? 'PUBLIC',
    entryVisibility: config.serviceEntryVisibility ?? null,
  };
}

/** The visibility that `exportTo` asks for; null for an empty list. */
export function visibilityOfScopes(scopes: readonly string[] | undefined): Visibility | null {
  if (scopes === undefined || scopes.length === 0) return null;
  if (scopes.includes('*')) return 'PUBLIC';
  return scopes.includes('.') ? 'NAMESPACE' : 'NONE';
}

/** The visibility that the mesh gives the ServiceEntries of a namespace with these labels. */
export function entryVisibility(mesh: Mesh, labels: Labels): Visibility {
  const { entryVisibility: rules } = mesh;
  if (rules === null || rules === undefined) return 'PUBLIC';
  const policy = rules.policies?.find((candidate) =>
    (candidate.matchingRules ?? []).every(
      ({ namespaceSelector }) =>
        namespaceSelector !== undefined && matchesSelector(namespaceSelector, labels),
    ),
  );
  return policy?.visibility ?? rules.defaultVisibility ?? 'PUBLIC';
}

/** The narrower of two visibilities. */
export function narrower(left: Visibility, right: Visibility): Visibility {
  const order: readonly Visibility[] = ['PUBLIC', 'NAMESPACE', 'NONE'];
  return order.indexOf(left) > order.indexOf(right) ? left : right;
}

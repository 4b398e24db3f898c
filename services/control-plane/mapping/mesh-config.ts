/** MeshConfig: the fields that the control plane reads, from YAML. Pure. */
import * as z from 'zod';
import {
  MESH_CONFIG_MAP,
  parseMeshConfig,
  trustDomainField,
} from '../../../lib/mesh-config/text.ts';
import type { RoutingScope } from '../../../lib/state/model.ts';
import { dnsLabel, labelSelector } from '../../../lib/kubernetes/label-fields.ts';
import { filled } from '../manifests/fields.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import type { ObjectChange } from '../store/object-store.ts';

/** The labels of `localityLbSetting.failoverPriority` that workloads carry as a scope. */
export const LOCALITY_SCOPES: ReadonlyMap<string, RoutingScope> = new Map([
  ['topology.istio.io/network', 'NETWORK'],
  ['topology.kubernetes.io/region', 'REGION'],
  ['topology.kubernetes.io/zone', 'ZONE'],
  ['topology.istio.io/subzone', 'SUBZONE'],
  ['kubernetes.io/hostname', 'NODE'],
  ['topology.istio.io/cluster', 'CLUSTER'],
]);

const visibility = z.enum(['PUBLIC', 'NAMESPACE', 'NONE']);

const ruled = z.object({
  visibility: visibility.optional(),
  matchingRules: z.array(z.object({ namespaceSelector: labelSelector.optional() })).optional(),
});

const schema = z.object({
  trustDomain: trustDomainField.optional(),
  trustDomainAliases: z.array(trustDomainField).optional(),
  rootNamespace: dnsLabel.optional(),
  discoverySelectors: z.array(labelSelector).optional(),
  defaultServiceExportTo: z.array(z.enum(['*', '.', '~'])).optional(),
  localityLbSetting: z
    .object({
      enabled: z.boolean().optional(),
      failoverPriority: z.array(filled).optional(),
    })
    .optional(),
  serviceScopeConfigs: z
    .array(
      z.object({
        namespaceSelector: labelSelector.optional(),
        servicesSelector: labelSelector.optional(),
        scope: z.enum(['LOCAL', 'GLOBAL']).optional(),
      }),
    )
    .optional(),
  serviceEntryVisibility: z
    .object({ defaultVisibility: visibility.optional(), policies: z.array(ruled).optional() })
    .optional(),
});

/** The part of a MeshConfig that the control plane reads. */
export type MeshConfig = z.output<typeof schema>;

/** A MeshConfig, and the paths of fields that have no effect. */
export interface ReadMeshConfig {
  readonly config: MeshConfig;
  readonly ignored: readonly string[];
}

/** Fields that are read but change nothing here, because they concern several clusters. */
const WITHOUT_EFFECT: ReadonlySet<string> = new Set(['serviceScopeConfigs']);

/**
 * Reads the YAML of a MeshConfig. Fields that the control plane does not know are ignored and listed. Throws CONFIG_INVALID
 * that names the field and the reason.
 */
export function readMeshConfig(source: string, text: string): ReadMeshConfig {
  const { config, value } = parseMeshConfig(schema, source, text);
  const ignored = Object.keys(value)
    .filter((name) => !Object.hasOwn(schema.shape, name) || WITHOUT_EFFECT.has(name))
    .sort();
  const locality = (value as { localityLbSetting?: object }).localityLbSetting ?? {};
  const inside = Object.keys(locality)
    .filter((name) => name !== 'enabled' && name !== 'failoverPriority')
    .map((name) => `localityLbSetting.${name}`);
  const labels = (config.localityLbSetting?.failoverPriority ?? [])
    .filter((label) => !LOCALITY_SCOPES.has(label))
    .map((label) => `localityLbSetting.failoverPriority: ${label}`);
  return { config, ignored: [...ignored, ...inside, ...labels] };
}

/** The text in the ConfigMap of a namespace, from a change of an object; undefined for any other object, null without a text. */
export function meshConfigText(
  { before, after }: ObjectChange,
  namespace: string,
): string | null | undefined {
  const object = after ?? before;
  if (object?.kind !== 'ConfigMap' || object.metadata.name !== MESH_CONFIG_MAP.name)
    return undefined;
  if (namespaceOf(object) !== namespace) return undefined;
  return after?.kind === 'ConfigMap' ? (after.data?.[MESH_CONFIG_MAP.key] ?? null) : null;
}

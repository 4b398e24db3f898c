/** MeshConfig: the fields that the control plane reads, from YAML. Pure. */
import { isScalar, parseDocument } from 'yaml';
import { z } from 'zod';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { RoutingScope } from '../../../lib/state/model.ts';
import { dnsLabel, filled, labelSelector } from '../manifests/fields.ts';

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
  trustDomain: filled.optional(),
  trustDomainAliases: z.array(filled).optional(),
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
  const document = parseDocument(text);
  const fault = document.errors[0];
  if (fault !== undefined) throw invalid(source, '', fault.message.split('\n')[0] ?? '');
  if (document.contents === null || isEmptyText(document.contents))
    return { config: {}, ignored: [] };
  const value: unknown = document.toJS();
  const result = schema.safeParse(value);
  if (!result.success) {
    const issue = result.error.issues[0];
    throw invalid(source, issue?.path.join('.') ?? '', issue?.message ?? 'is invalid');
  }
  const ignored = Object.keys(value as object)
    .filter((name) => !Object.hasOwn(schema.shape, name) || WITHOUT_EFFECT.has(name))
    .sort();
  const locality = (value as { localityLbSetting?: object }).localityLbSetting ?? {};
  const inside = Object.keys(locality)
    .filter((name) => name !== 'enabled' && name !== 'failoverPriority')
    .map((name) => `localityLbSetting.${name}`);
  const labels = (result.data.localityLbSetting?.failoverPriority ?? [])
    .filter((label) => !LOCALITY_SCOPES.has(label))
    .map((label) => `localityLbSetting.failoverPriority: ${label}`);
  return { config: result.data, ignored: [...ignored, ...inside, ...labels] };
}

function isEmptyText(contents: unknown): boolean {
  return isScalar(contents) && (contents.value === null || contents.value === '');
}

function invalid(source: string, path: string, reason: string): MeshError {
  const place = path === '' ? source : `${source}, ${path}`;
  return new MeshError('CONFIG_INVALID', `${place}: ${reason}`, { detail: { field: path } });
}

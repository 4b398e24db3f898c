import { configInvalid } from '../../../lib/config/define-config.ts';
import type { ConfigValues } from '../../../lib/config/define-config.ts';
import { bool } from '../../../lib/config/fields.ts';
import { clusterId, clusterVariables } from '../../../lib/identity/cluster.ts';
import { ON_DEMAND_WAIT_MS } from '../limits.ts';
import type { OnDemandSettings } from '../state-thread/protocol.ts';

/** Settings of a mesh that is followed on demand (docs/decisions/on-demand.md). */
export const onDemandVariables = {
  ...clusterVariables,
  XDS_ON_DEMAND: {
    schema: bool({ optional: true }),
    description:
      'ask for addresses when connections need them; set it for xds-ingester too, and ISTIO_META_DNS_CAPTURE=false',
    when: 'the mesh is much larger than the part that the nodes of this Redis talk to',
  },
} as const;

/**
 * Returns the settings; null when the whole mesh is followed. A variable goes before the same name in proxyMetadata. Throws
 * CONFIG_INVALID with the DNS proxy, as upstream.
 */
export function onDemandSettings(
  values: ConfigValues<typeof onDemandVariables>,
  metadata: Readonly<Record<string, string>>,
  other: { readonly dns: boolean; readonly local: boolean },
): OnDemandSettings | null {
  if (!(values.XDS_ON_DEMAND ?? metadata['XDS_ON_DEMAND']?.toLowerCase() === 'true')) return null;
  const problems: string[] = [];
  if (other.dns) {
    problems.push(
      'XDS_ON_DEMAND=true cannot be used with the DNS proxy, which needs all names: set ISTIO_META_DNS_CAPTURE=false',
    );
  }
  if (other.local) problems.push('XDS_ON_DEMAND needs a control plane, but XDS_ADDRESS is empty');
  if (problems.length > 0) throw configInvalid(problems);
  return { waitMs: ON_DEMAND_WAIT_MS, clusterId: clusterId(values) };
}

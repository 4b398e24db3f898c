import { text } from '../config/fields.ts';

/** The cluster an actor names to the control plane and the CA (docs/spec/observability.md §6). */
export const clusterVariables = {
  CLUSTER_ID: { schema: text({ default: 'Kubernetes' }), description: 'id of this cluster' },
  ISTIO_META_CLUSTER_ID: {
    schema: text({ optional: true }),
    description: 'id of this cluster; goes before CLUSTER_ID',
  },
} as const;

/** The cluster of {@link clusterVariables}. */
export function clusterId(values: {
  readonly CLUSTER_ID: string;
  readonly ISTIO_META_CLUSTER_ID: string | null;
}): string {
  return values.ISTIO_META_CLUSTER_ID ?? values.CLUSTER_ID;
}

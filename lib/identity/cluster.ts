import { text } from '../config/fields.ts';

/** The id of the cluster, sent to the control plane and the CA (docs/spec/observability.md §6). */
export const clusterVariables = {
  CLUSTER_ID: { schema: text({ default: 'Kubernetes' }), description: 'id of this cluster' },
  ISTIO_META_CLUSTER_ID: {
    schema: text({ optional: true }),
    description: 'id of this cluster; takes precedence over CLUSTER_ID',
  },
} as const;

/** Returns the cluster id of the values. */
export function clusterId(values: {
  readonly CLUSTER_ID: string;
  readonly ISTIO_META_CLUSTER_ID: string | null;
}): string {
  return values.ISTIO_META_CLUSTER_ID ?? values.CLUSTER_ID;
}

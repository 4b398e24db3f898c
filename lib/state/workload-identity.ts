import type { Workload } from './model.ts';

/**
 * The identity a workload's certificate carries. Workloads with names that no identity can hold give a text
 * that no peer ever presents, so they are never connected to by mistake.
 */
export function workloadIdentity(
  workload: Pick<Workload, 'trustDomain' | 'namespace' | 'serviceAccount'>,
): string {
  return `spiffe://${workload.trustDomain}/ns/${workload.namespace}/sa/${workload.serviceAccount}`;
}

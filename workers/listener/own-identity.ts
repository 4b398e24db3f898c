import { formatSpiffe } from '../../lib/identity/spiffe.ts';
import type { Workload } from '../../lib/state/model.ts';
import type { PodInfo } from './protocol.ts';

/**
 * The identity a pod acts under: trust domain as the mesh says, the rest as the node agent does, which is nearer
 * to the pod. Throws IDENTITY_INVALID for names no identity can hold.
 */
export function ownIdentity(workload: Workload, pod: PodInfo): string {
  return formatSpiffe({
    trustDomain: workload.trustDomain,
    namespace: pod.namespace,
    serviceAccount: pod.serviceAccount,
  });
}

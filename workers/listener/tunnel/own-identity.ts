import { formatSpiffe } from '../../../lib/net/spiffe.ts';
import type { Workload } from '../../../lib/state/model.ts';
import type { PodInfo } from '../protocol/control.ts';

/** The last answer for each pod: a connection asks more than once, and neither side changes often. */
const known = new WeakMap<PodInfo, { readonly workload: Workload; readonly identity: string }>();

/**
 * The identity a pod acts under: trust domain as the mesh says, the rest as the node agent does, which is nearer
 * to the pod. Throws IDENTITY_INVALID for names no identity can hold.
 */
export function ownIdentity(workload: Workload, pod: PodInfo): string {
  const last = known.get(pod);
  if (last?.workload === workload) return last.identity;
  const identity = formatSpiffe({
    trustDomain: workload.trustDomain,
    namespace: pod.namespace,
    serviceAccount: pod.serviceAccount,
  });
  known.set(pod, { workload, identity });
  return identity;
}

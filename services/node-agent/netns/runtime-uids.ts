import type { PodRecord } from '../../../lib/state/pod-record.ts';

/** Kubelet's own uid of a static pod, whose copy in the API has another one. */
const STATIC_POD_UID = 'kubernetes.io/config.hash';

/** Returns the uids under which the container runtime may know the pod. */
export function runtimeUids({
  uid,
  annotations,
}: Pick<PodRecord, 'uid' | 'annotations'>): readonly string[] {
  const own = annotations[STATIC_POD_UID];
  return own === undefined ? [uid] : [uid, own];
}

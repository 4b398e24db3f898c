/** Decides which pods take part in the mesh (docs/spec/cni.md §2.1). Pure. */
import type { PodRecord } from '../../lib/state/pod-record.ts';

/** A decision and the rule that gave it. */
export interface Eligibility {
  readonly enrol: boolean;
  readonly reason:
    | 'host-network'
    | 'sidecar'
    | 'excluded-namespace'
    | 'pod-label'
    | 'pod-opted-out'
    | 'namespace-label'
    | 'no-label';
}

const MODE_LABEL = 'istio.io/dataplane-mode';
const SIDECAR_ANNOTATION = 'sidecar.istio.io/status';

/** Decides for one pod. `excludedNamespaces` overrides every label. */
export function eligibility(
  pod: Pick<PodRecord, 'hostNetwork' | 'annotations' | 'labels' | 'namespaceLabels' | 'namespace'>,
  excludedNamespaces: readonly string[],
): Eligibility {
  if (pod.hostNetwork) return { enrol: false, reason: 'host-network' };
  if (pod.annotations[SIDECAR_ANNOTATION] !== undefined) return { enrol: false, reason: 'sidecar' };
  if (excludedNamespaces.includes(pod.namespace)) {
    return { enrol: false, reason: 'excluded-namespace' };
  }
  const mode = pod.labels[MODE_LABEL];
  if (mode === 'ambient') return { enrol: true, reason: 'pod-label' };
  if (mode === 'none') return { enrol: false, reason: 'pod-opted-out' };
  return pod.namespaceLabels[MODE_LABEL] === 'ambient'
    ? { enrol: true, reason: 'namespace-label' }
    : { enrol: false, reason: 'no-label' };
}

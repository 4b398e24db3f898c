/** Decides which pods take part in the mesh (docs/spec/cni.md §2.1). Pure. */
import { matchesSelector } from '../../lib/kubernetes/label-selector.ts';
import type { LabelSelector, Labels } from '../../lib/kubernetes/label-selector.ts';

/** The facts of a pod that decide. */
export interface EligiblePod {
  readonly namespace: string;
  readonly labels: Labels;
  readonly annotations: Readonly<Record<string, string>>;
  readonly namespaceLabels: Labels;
  readonly hostNetwork: boolean;
}

/** One way into the mesh: both selectors must select; one that is absent or empty selects everything. */
export interface EnablementSelector {
  readonly podSelector?: LabelSelector | undefined;
  readonly namespaceSelector?: LabelSelector | undefined;
}

/** The node's rules. */
export interface EligibilityRules {
  /** Namespaces whose pods are never enrolled, whatever their labels. */
  readonly excludedNamespaces: readonly string[];
  /** A pod is in the mesh when one of them selects it. */
  readonly selectors: readonly EnablementSelector[];
}

/** A decision and the rule that gave it. */
export interface Eligibility {
  readonly enrol: boolean;
  readonly reason:
    | 'host-network'
    | 'sidecar'
    | 'excluded-namespace'
    | 'selected'
    | 'opted-out'
    | 'not-selected';
}

const MODE_LABEL = 'istio.io/dataplane-mode';
const SIDECAR_ANNOTATION = 'sidecar.istio.io/status';

/** Upstream's selectors: the label on the pod, or on its namespace unless the pod has opted out. */
export const DEFAULT_SELECTORS: readonly EnablementSelector[] = [
  { podSelector: { matchLabels: { [MODE_LABEL]: 'ambient' } } },
  {
    namespaceSelector: { matchLabels: { [MODE_LABEL]: 'ambient' } },
    podSelector: {
      matchExpressions: [{ key: MODE_LABEL, operator: 'NotIn', values: ['none'] }],
    },
  },
];

/** Decides for one pod. */
export function eligibility(pod: EligiblePod, rules: EligibilityRules): Eligibility {
  if (pod.hostNetwork) return { enrol: false, reason: 'host-network' };
  if (pod.annotations[SIDECAR_ANNOTATION] !== undefined) return { enrol: false, reason: 'sidecar' };
  if (rules.excludedNamespaces.includes(pod.namespace)) {
    return { enrol: false, reason: 'excluded-namespace' };
  }
  const selected = rules.selectors.some(
    ({ podSelector = {}, namespaceSelector = {} }) =>
      matchesSelector(podSelector, pod.labels) &&
      matchesSelector(namespaceSelector, pod.namespaceLabels),
  );
  if (selected) return { enrol: true, reason: 'selected' };
  return { enrol: false, reason: pod.labels[MODE_LABEL] === 'none' ? 'opted-out' : 'not-selected' };
}

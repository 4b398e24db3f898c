/** Label selectors of Kubernetes. Pure; it imports nothing, so that the helper of the CNI plugin can carry it. */

/** Labels by key. */
export type Labels = Readonly<Record<string, string>>;

/** A label selector of Kubernetes; an empty one selects everything. */
export interface LabelSelector {
  readonly matchLabels?: Labels | undefined;
  readonly matchExpressions?:
    | readonly {
        readonly key: string;
        readonly operator: string;
        readonly values?: readonly string[] | undefined;
      }[]
    | undefined;
}

/** True when every label of the selector is there with its value. */
export function selectsLabels(selector: Labels, labels: Labels): boolean {
  for (const key in selector) if (labels[key] !== selector[key]) return false;
  return true;
}

/** True when the selector selects the labels. An operator that nobody knows selects nothing. */
export function matchesSelector(selector: LabelSelector, labels: Labels): boolean {
  if (!selectsLabels(selector.matchLabels ?? {}, labels)) return false;
  return (selector.matchExpressions ?? []).every(({ key, operator, values }) => {
    const value = labels[key];
    switch (operator) {
      case 'In':
        return value !== undefined && (values ?? []).includes(value);
      case 'NotIn':
        return value === undefined || !(values ?? []).includes(value);
      case 'Exists':
        return value !== undefined;
      case 'DoesNotExist':
        return value === undefined;
      default:
        return false;
    }
  });
}

/** Label selectors, and how to find the selectors that select given labels without trying them all. Pure. */
import { compareText } from '../../../lib/collections/compare.ts';
import type { Labels } from './labels.ts';

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

/** The index value of a selector in a namespace: one label that it demands. */
export function selectorIndexValue(namespace: string, selector: Labels): string {
  const first = Object.keys(selector).sort(compareText)[0];
  return first === undefined ? `${namespace}|` : `${namespace}|${first}=${selector[first] ?? ''}`;
}

/** The index values under which selectors of a namespace may select these labels. */
export function labelIndexValues(namespace: string, labels: Labels): string[] {
  return [
    `${namespace}|`,
    ...Object.entries(labels).map(([key, value]) => `${namespace}|${key}=${value}`),
  ];
}

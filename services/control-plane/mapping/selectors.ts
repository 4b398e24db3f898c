/** How to find the selectors that select given labels without trying them all. Pure. */
import { compareText } from '../../../lib/collections/compare.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';

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

/** Selects access lines by the namespace of the pod that owns them. Errors are always written. Pure. */

/** Shares of lines to write, from 0 to 1. Plain data. */
export interface AccessRules {
  /** The share of namespaces that are not named. */
  readonly share: number;
  readonly namespaces: readonly (readonly [namespace: string, share: number])[];
}

/** Namespaces that rules may name; the text of all of them must fit an admin request. */
export const MAX_ACCESS_NAMESPACES = 256;

const NAMESPACE = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const PERCENT = /^(\d{1,3}(?:\.\d{1,3})?)%$/;
const PERCENTS = 100;

/** Digits of a trace id that decide, and the number of their values. */
const SAMPLE_DIGITS = 8;
const SAMPLE_VALUES = 2 ** 32;

/**
 * Parses rules: `all`, `errors` or `10%`, and `<namespace>=` one of them, separated by commas. The default is `all`. Throws an
 * Error that names the fault and its place.
 */
export function parseAccessRules(text: string): AccessRules {
  let share = 1;
  const namespaces = new Map<string, number>();
  for (const element of text.split(',').map((part) => part.trim())) {
    const [left = '', right, ...more] = element.split('=');
    const found = parseShare(right ?? left);
    const bad = found === null || more.length > 0;
    if (bad || (right !== undefined && !NAMESPACE.test(left))) {
      throw new Error(
        `${JSON.stringify(element.slice(0, 200))} is neither all, errors nor a share such as 10%, nor namespace= one of them`,
      );
    }
    if (right === undefined) share = found;
    else namespaces.set(left, found);
  }
  if (namespaces.size > MAX_ACCESS_NAMESPACES) {
    throw new Error(`rules name at most ${MAX_ACCESS_NAMESPACES} namespaces`);
  }
  return { share, namespaces: [...namespaces].sort(([a], [b]) => (a < b ? -1 : 1)) };
}

/** Writes rules as {@link parseAccessRules} reads them. */
export function formatAccessRules({ share, namespaces }: AccessRules): string {
  return [
    formatShare(share),
    ...namespaces.map(([namespace, own]) => `${namespace}=${formatShare(own)}`),
  ].join(',');
}

/** Returns whether a trace is within the share. Both ends of a tunnel with the same share get the same answer. */
export function isSampled(share: number, traceId: string | null): boolean {
  if (share >= 1) return true;
  if (share <= 0) return false;
  if (traceId === null) return Math.random() < share;
  return Number.parseInt(traceId.slice(0, SAMPLE_DIGITS), 16) < share * SAMPLE_VALUES;
}

function parseShare(text: string): number | null {
  if (text === 'all') return 1;
  if (text === 'errors') return 0;
  const percent = Number(PERCENT.exec(text)?.[1] ?? NaN);
  return percent <= PERCENTS ? percent / PERCENTS : null;
}

function formatShare(share: number): string {
  if (share === 1) return 'all';
  // Three decimals were parsed; further ones are rounding errors.
  return share === 0 ? 'errors' : `${Number((share * PERCENTS).toFixed(3))}%`;
}

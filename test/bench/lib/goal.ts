/** Defines goals as ratios to a peer of the same run, so that they do not depend on the machine. */
import type { PeerName } from './rig.ts';

/** `least` and `most` times the peer's figure. */
export interface Goal {
  readonly against: PeerName;
  readonly least?: number;
  readonly most?: number;
}

/** The result of a goal in one run. */
export interface Verdict {
  /** Weft's figure over the peer's. */
  readonly ratio: number;
  readonly met: boolean;
}

/** Tells whether the goal is met; null when either side was not measured. */
export function judge(goal: Goal, values: ReadonlyMap<PeerName, number>): Verdict | null {
  const weft = values.get('weft');
  const other = values.get(goal.against);
  if (weft === undefined || other === undefined) return null;
  const ratio = weft / other;
  const { least = 0, most = Number.POSITIVE_INFINITY } = goal;
  return { ratio, met: ratio >= least && ratio <= most };
}

/** Formats the goal, such as `≥ 0.80 haproxy`. */
export function describeGoal({ against, least, most }: Goal): string {
  if (least !== undefined) return `≥ ${least.toFixed(2)} ${against}`;
  return most === undefined ? '' : `≤ ${most.toFixed(2)} ${against}`;
}

/** Returns the median of the values. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((left, right) => left - right);
  const middle = sorted.length / 2;
  const low = sorted[Math.ceil(middle) - 1] ?? Number.NaN;
  const high = sorted[Math.floor(middle)] ?? Number.NaN;
  return (low + high) / 2;
}

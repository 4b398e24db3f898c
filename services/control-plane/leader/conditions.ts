/** Decides which conditions an object's status needs. Pure. */
import type { ObjectStatus } from '../mapping/object-status.ts';

/** A condition as an object has it. */
export interface WrittenCondition {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
  readonly lastTransitionTime: string;
  readonly observedGeneration?: number;
}

/**
 * Returns the conditions to write, or null when the object has them already. `present` are those that the object has, `owned`
 * the types that belong to the control plane. A condition keeps its time while its status stays the same.
 */
export function conditionsToWrite(
  desired: ObjectStatus | null,
  present: readonly Partial<WrittenCondition>[],
  owned: readonly string[],
  now: string,
): WrittenCondition[] | null {
  const mine = new Map(
    present
      .filter(({ type }) => type !== undefined && owned.includes(type))
      .map((condition) => [condition.type, condition]),
  );
  const wanted = (desired?.conditions ?? []).map((condition): WrittenCondition => {
    const before = mine.get(condition.type);
    const kept = before?.status === condition.status ? before.lastTransitionTime : undefined;
    const generation = desired?.generation ?? null;
    return {
      ...condition,
      lastTransitionTime: kept ?? now,
      ...(generation === null ? {} : { observedGeneration: generation }),
    };
  });
  const isPresent =
    wanted.length === mine.size &&
    wanted.every((condition) => isSame(condition, mine.get(condition.type)));
  return isPresent ? null : wanted;
}

function isSame(wanted: WrittenCondition, before: Partial<WrittenCondition> | undefined): boolean {
  return (
    before !== undefined &&
    before.status === wanted.status &&
    before.reason === wanted.reason &&
    before.message === wanted.message &&
    before.observedGeneration === wanted.observedGeneration
  );
}

/** Items that are sorted natively before they are merged: some hundred microseconds. */
const RUN_LENGTH = 512;
/** Steps of a merge between two looks at the clock. */
const STEPS_PER_BREATH = 256;

/** Sorts in small steps, and calls `breathe` between them, which may let the event loop turn. */
export async function slicedSort<T>(
  items: readonly T[],
  compare: (left: T, right: T) => number,
  breathe: () => Promise<void>,
): Promise<readonly T[]> {
  let runs: (readonly T[])[] = [];
  for (let start = 0; start < items.length; start += RUN_LENGTH) {
    runs.push(items.slice(start, start + RUN_LENGTH).sort(compare));
    await breathe();
  }
  while (runs.length > 1) {
    const merged: (readonly T[])[] = [];
    for (let index = 0; index < runs.length; index += 2) {
      merged.push(await merge(runs[index] ?? [], runs[index + 1] ?? [], compare, breathe));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

async function merge<T>(
  left: readonly T[],
  right: readonly T[],
  compare: (left: T, right: T) => number,
  breathe: () => Promise<void>,
): Promise<readonly T[]> {
  const result: T[] = [];
  let at = 0;
  let other = 0;
  while (at < left.length || other < right.length) {
    const takeLeft =
      other >= right.length || (at < left.length && compare(left[at] as T, right[other] as T) <= 0);
    if (takeLeft) {
      result.push(left[at] as T);
      at += 1;
    } else {
      result.push(right[other] as T);
      other += 1;
    }
    if (result.length % STEPS_PER_BREATH === 0) await breathe();
  }
  return result;
}

/** Seconds and nanoseconds since the epoch, as the SDK has time. */
export type HighTime = [seconds: number, nanoseconds: number];

const MS_PER_SECOND = 1_000;
const NS_PER_MS = 1_000_000;

/** Epoch milliseconds, with fractions, as {@link HighTime}. */
export function hrTime(epochMs: number): HighTime {
  const seconds = Math.floor(epochMs / MS_PER_SECOND);
  return [seconds, Math.round((epochMs - seconds * MS_PER_SECOND) * NS_PER_MS)];
}

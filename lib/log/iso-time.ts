const MS_PER_SECOND = 1_000;

let second = NaN;
let prefix = '';

/** The time now as in `2026-11-21T09:30:00.123Z`; all but the milliseconds is put together once a second. */
export function isoTime(nowMs: number = Date.now()): string {
  const whole = Math.floor(nowMs / MS_PER_SECOND);
  if (whole !== second) {
    second = whole;
    prefix = new Date(whole * MS_PER_SECOND).toISOString().slice(0, -4);
  }
  const ms = nowMs - whole * MS_PER_SECOND;
  return `${prefix}${ms < 10 ? '00' : ms < 100 ? '0' : ''}${ms}Z`;
}

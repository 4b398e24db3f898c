/** The settings of drains. */
import { duration, integer } from './fields.ts';

/** The variables; {@link drainDeadlineMs} shapes their values. */
export const drainVariables = {
  CONNECTION_TERMINATION_DEADLINE: {
    schema: duration({ optional: true }),
    description: 'how long a drain, and the connections of a pod that leaves, may take; default 5s',
  },
  TERMINATION_GRACE_PERIOD_SECONDS: {
    schema: integer({ min: 0 })({ optional: true }),
    description: 'derives that deadline when it is unset',
  },
} as const;

const DEFAULT_DEADLINE_MS = 5_000;

/** Returns the deadline in milliseconds by upstream's rule (docs/spec/inpod.md §6): most of the grace period, which leaves time to exit. */
export function drainDeadlineMs(values: {
  readonly CONNECTION_TERMINATION_DEADLINE: number | null;
  readonly TERMINATION_GRACE_PERIOD_SECONDS: number | null;
}): number {
  const graceSeconds = values.TERMINATION_GRACE_PERIOD_SECONDS;
  if (values.CONNECTION_TERMINATION_DEADLINE !== null) {
    return values.CONNECTION_TERMINATION_DEADLINE;
  }
  if (graceSeconds === null) return DEFAULT_DEADLINE_MS;
  return Math.max(1, graceSeconds > 10 ? graceSeconds - 5 : graceSeconds - 1) * 1_000;
}

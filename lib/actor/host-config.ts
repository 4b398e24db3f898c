import { defineConfig } from '../config/define-config.ts';
import { duration, endpoint, integer, oneOf, text } from '../config/fields.ts';
import type { Endpoint } from '../config/fields.ts';

/** What a process that hosts actors is told, whatever actors it hosts. */
export interface HostConfig {
  readonly node: string | null;
  readonly admin: Endpoint | null;
  readonly logLevel: string;
  readonly drainDeadlineMs: number;
}

/** Upstream's rule (spec/inpod.md §6): most of the grace period, leaving time to exit. */
export function drainDeadlineMs(explicitMs: number | null, graceSeconds: number | null): number {
  if (explicitMs !== null) return explicitMs;
  if (graceSeconds === null) return 5_000;
  return Math.max(1, graceSeconds > 10 ? graceSeconds - 5 : graceSeconds - 1) * 1_000;
}

/** Variables every actor process reads. */
export const hostConfig = defineConfig(
  {
    NODE_NAME: { schema: text({ optional: true }), description: 'node this process runs on' },
    WEFT_ADMIN_ADDRESS: {
      schema: endpoint({ optional: true }),
      description: 'admin server: unix:/path or host:port; none when unset',
    },
    WEFT_LOG_LEVEL: {
      schema: oneOf('trace', 'debug', 'info', 'warn', 'error')({ default: 'info' }),
      description: 'least severe log level written',
    },
    CONNECTION_TERMINATION_DEADLINE: {
      schema: duration({ optional: true }),
      description: 'how long a drain may take; default 5s',
    },
    TERMINATION_GRACE_PERIOD_SECONDS: {
      schema: integer({ min: 0 })({ optional: true }),
      description: 'derives the drain deadline when that is unset',
    },
  },
  (values): HostConfig => ({
    node: values.NODE_NAME,
    admin: values.WEFT_ADMIN_ADDRESS,
    logLevel: values.WEFT_LOG_LEVEL,
    drainDeadlineMs: drainDeadlineMs(
      values.CONNECTION_TERMINATION_DEADLINE,
      values.TERMINATION_GRACE_PERIOD_SECONDS,
    ),
  }),
);

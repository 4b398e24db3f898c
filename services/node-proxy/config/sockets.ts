import type { ConfigValues } from '../../../lib/config/define-config.ts';
import { bool, duration, integer } from '../../../lib/config/fields.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { TUNNEL_USER_TIMEOUT_MS } from './fixed.ts';
import type { ListenerSettings } from '../../../workers/listener/protocol/settings.ts';

/** The kernel's limit of a keepalive's times (MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL). */
const MAX_KEEPALIVE_MS = 32_767_000;

/** TCP_USER_TIMEOUT is a signed number of 32 bits, in milliseconds. */
const MAX_USER_TIMEOUT_MS = 2_147_483_647;

const keepaliveTime = duration({ default: 180_000 }).refine(
  (ms) => ms <= MAX_KEEPALIVE_MS,
  `must be no more than ${MAX_KEEPALIVE_MS / 1_000}s`,
);

/** Variables that say when the kernel gives up a connection (docs/spec/dataplane.md §9). */
export const socketVariables = {
  KEEPALIVE_ENABLED: { schema: bool({ default: true }), description: 'TCP keepalive' },
  KEEPALIVE_TIME: { schema: keepaliveTime, description: 'idle time to a probe, up to 32767s' },
  KEEPALIVE_INTERVAL: { schema: keepaliveTime, description: 'between probes, up to 32767s' },
  KEEPALIVE_RETRIES: {
    schema: integer({ min: 1, max: 127 })({ default: 9 }),
    description: 'probes until a connection counts as dead',
  },
  USER_TIMEOUT_ENABLED: {
    schema: bool({ default: false }),
    description: 'TCP_USER_TIMEOUT of keepalive time + retries x interval',
  },
} as const;

/** Returns the settings of {@link socketVariables}. Throws CONFIG_INVALID for a user timeout that the kernel cannot hold. */
export function socketConfig(
  values: ConfigValues<typeof socketVariables>,
): Pick<ListenerSettings, 'keepalive' | 'userTimeoutMs' | 'tunnelUserTimeoutMs'> {
  const { KEEPALIVE_TIME: timeMs, KEEPALIVE_INTERVAL: intervalMs } = values;
  const retries = values.KEEPALIVE_RETRIES;
  const spanMs = timeMs + retries * intervalMs;
  if (values.USER_TIMEOUT_ENABLED && spanMs > MAX_USER_TIMEOUT_MS) {
    throw new MeshError(
      'CONFIG_INVALID',
      `USER_TIMEOUT_ENABLED asks for KEEPALIVE_TIME + KEEPALIVE_RETRIES x KEEPALIVE_INTERVAL, which must be no more than ${MAX_USER_TIMEOUT_MS}ms, got ${spanMs}ms`,
    );
  }
  return {
    keepalive: { enabled: values.KEEPALIVE_ENABLED, timeMs, intervalMs, retries },
    userTimeoutMs: values.USER_TIMEOUT_ENABLED ? spanMs : 0,
    tunnelUserTimeoutMs: TUNNEL_USER_TIMEOUT_MS,
  };
}

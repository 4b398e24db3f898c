/** A certificate is renewed after this part of its remaining time. */
const RENEWAL_FRACTION = 0.5;

/** Spreads the renewals of certificates that a node fetched together. */
const RENEWAL_JITTER = 0.1;

/** Shortest delay; bounds the load of short-lived certificates on the CA. */
export const MIN_RENEWAL_DELAY_MS = 5_000;

/**
 * The delay from `nowMs` to the renewal of a certificate: half of its remaining time, ± 10 %, at least
 * {@link MIN_RENEWAL_DELAY_MS}. `notBefore` is ignored because CAs backdate it. `random` is in [0, 1).
 */
export function renewalDelayMs(nowMs: number, notAfterMs: number, random: number): number {
  const half = Math.max(0, notAfterMs - nowMs) * RENEWAL_FRACTION;
  return Math.max(MIN_RENEWAL_DELAY_MS, half * (1 + RENEWAL_JITTER * (2 * random - 1)));
}

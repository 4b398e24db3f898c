/** Part of the time left after which a certificate is renewed. */
const RENEWAL_FRACTION = 0.5;

/** Spread of renewals, so that a node's certificates, fetched together, are not renewed together. */
const RENEWAL_JITTER = 0.1;

/** No sooner than this, however short the certificate: bounds the load on the CA. */
export const MIN_RENEWAL_DELAY_MS = 5_000;

/**
 * How long after its receipt at `nowMs` a certificate is renewed: half of the time it has left, ± 10 %, at least
 * {@link MIN_RENEWAL_DELAY_MS}. `notBefore` plays no part, as CAs backdate it. `random` is in [0, 1).
 */
export function renewalDelayMs(nowMs: number, notAfterMs: number, random: number): number {
  const half = Math.max(0, notAfterMs - nowMs) * RENEWAL_FRACTION;
  return Math.max(MIN_RENEWAL_DELAY_MS, half * (1 + RENEWAL_JITTER * (2 * random - 1)));
}

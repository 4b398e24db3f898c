import type { Clock } from '../clock/clock.ts';
import { CallerRates } from '../async/gate.ts';
import { evictOldest } from '../collections/evict.ts';
import { sha256Hex } from '../digest/sha256.ts';
import { tryCanonicalIp, tryParseIp } from '../net/address.ts';

/** Addresses whose failures are remembered; the least recently active one is forgotten first. */
export const MAX_ADDRESSES = 10_000;

/** Tokens that are remembered as admitted, some 150 B each; the one that was admitted longest ago is forgotten first. */
export const MAX_ADMITTED_TOKENS = 10_000;

/** Bytes of an IPv6 address that count: one host may have all addresses of a /64. */
const V6_PREFIX_BYTES = 8;

/** How a call ended. Only a failed one counts. */
export type CallEnd = 'admitted' | 'failed' | 'uncounted';

/** A call under way; `end` ends it, once. */
export interface CountedCall {
  end(how: CallEnd): void;
}

/**
 * Limits the failed calls of an address, because to check a token is work, and anybody may ask for it. A token that was admitted lately is
 * checked in any case, so that one bad caller does not shut out the others behind its address, which may be a whole node.
 */
export class CallerFailures {
  readonly #rates: CallerRates;
  readonly #admitted = new Map<string, true>();

  /** An address may fail `perSecond` times a second; a burst of twice this passes. */
  constructor(perSecond: number, clock: Clock) {
    this.#rates = new CallerRates({ perSecond, callers: MAX_ADDRESSES }, clock);
  }

  /** Begins a call of `peer` (address:port); null when its address has failed too often. Calls without a token count apart. */
  begin(peer: string, token: string | null): CountedCall | null {
    const hash = token === null ? null : sha256Hex(token);
    const isKnown = hash !== null && this.#admitted.has(hash);
    const kind = hash === null ? 'no token' : 'token';
    const gate = isKnown ? null : this.#rates.of(`${kind} ${callerAddress(peer)}`);
    if (gate?.enter() === false) return null;
    return {
      end: (how) => {
        if (hash !== null && how !== 'uncounted') this.#note(hash, how === 'admitted');
        gate?.leave({ uncounted: how !== 'failed' });
      },
    };
  }

  #note(hash: string, admitted: boolean): void {
    this.#admitted.delete(hash);
    if (!admitted) return;
    this.#admitted.set(hash, true);
    evictOldest(this.#admitted, MAX_ADMITTED_TOKENS);
  }
}

/** Returns the address of a gRPC peer (`10.0.0.1:40000`, `fd00::1:40000`) without its port; of IPv6 the /64. */
export function callerAddress(peer: string): string {
  const colon = peer.lastIndexOf(':');
  const host = colon < 0 ? peer : peer.slice(0, colon).replace(/^\[(.*)\]$/, '$1');
  const address = tryParseIp(tryCanonicalIp(host) ?? '');
  if (address?.family !== 6) return tryCanonicalIp(host) ?? host;
  return Buffer.from(address.bytes).toString('hex', 0, V6_PREFIX_BYTES);
}

import type { Clock } from '../clock/clock.ts';
import { TokenBucket } from '../async/token-bucket.ts';
import type { Logger } from '../log/logger.ts';

/** NACKs that are listed; older ones are forgotten first. */
export const MAX_LISTED_NACKS = 1_000;
/** Longest text of a NACK that is kept and logged. */
const MAX_TEXT = 2_000;
/** NACKs logged in one burst, and then in a second: a bad resource is refused by every node at once. */
const LOGGED = { burst: 50, perSecond: 5 } as const;

/** A response that a client refused. */
export interface Nack {
  readonly at: string;
  readonly node: string;
  readonly stream: string;
  readonly type: string;
  readonly nonce: string;
  readonly reason: string;
}

/** Remembers the last refusals of the clients, and logs them at a bounded rate. */
export class NackLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #rate: TokenBucket;
  readonly #nacks: Nack[] = [];
  #unlogged = 0;

  constructor({ log, clock }: { readonly log: Logger; readonly clock: Clock }) {
    this.#log = log;
    this.#clock = clock;
    this.#rate = new TokenBucket(clock, LOGGED);
  }

  /** The last {@link MAX_LISTED_NACKS}, oldest first. */
  get nacks(): readonly Nack[] {
    return this.#nacks;
  }

  /** Notes a refusal of the present time. */
  note(nack: Omit<Nack, 'at'>): void {
    const reason = nack.reason.slice(0, MAX_TEXT);
    this.#nacks.push({ ...nack, reason, at: new Date(this.#clock.now()).toISOString() });
    if (this.#nacks.length > MAX_LISTED_NACKS) this.#nacks.shift();
    if (!this.#rate.spend()) {
      this.#unlogged += 1;
      return;
    }
    const { node, stream, type, nonce } = nack;
    const more = this.#unlogged === 0 ? {} : { unlogged: this.#unlogged };
    this.#log.warn({ node, stream, type, nonce, reason, ...more }, 'xds.nacked');
    this.#unlogged = 0;
  }
}

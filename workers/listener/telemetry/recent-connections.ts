import { TokenBucket } from '../../../lib/async/token-bucket.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { Connection } from './connection.ts';
import { MAX_RECENT_CONNECTIONS, RECENT_OF_POD } from '../limits.ts';
import type { ConnectionRecord } from '../protocol/connections.ts';

/** The last ended connections that a thread was given to keep, whatever the access log lets through. */
export class RecentConnections {
  readonly #max: number;
  readonly #ring: { readonly connection: Connection; readonly podUid: string }[] = [];
  #next = 0;

  constructor(max: number = MAX_RECENT_CONNECTIONS) {
    this.#max = max;
  }

  /** Keeps a finished connection in place of the oldest one. */
  add(connection: Connection, podUid: string): void {
    this.#ring[this.#next] = { connection, podUid };
    this.#next = (this.#next + 1) % this.#max;
  }

  /** Their records, in no order. */
  *records(withLines = false): Generator<ConnectionRecord> {
    const now = [...this.#ring];
    for (const { connection, podUid } of now) yield connection.record(podUid, withLines);
  }
}

/** The end of a trace id, one in sixteen, that has the proxies of both ends keep the connection. */
const SHARED_END = '0';

/**
 * One pod's share of the last connections on a thread: those that failed or that somebody looked at, and {@link RECENT_OF_POD} of the
 * others, of which half by their trace id, so that the proxy of the other end keeps the same. A busy pod leaves room for
 * others, and V8 need not move each of its connections to the old generation.
 */
export class RecentOfPod {
  readonly #recent: RecentConnections;
  readonly #podUid: string;
  readonly #any: TokenBucket;
  readonly #shared: TokenBucket;

  constructor(recent: RecentConnections, podUid: string, clock: Clock) {
    this.#recent = recent;
    this.#podUid = podUid;
    this.#any = new TokenBucket(clock, RECENT_OF_POD);
    this.#shared = new TokenBucket(clock, RECENT_OF_POD);
  }

  /** Keeps a finished connection if it is one of the share. */
  add(connection: Connection): void {
    if (connection.noteworthy || this.#isOneOfMany(connection)) {
      this.#recent.add(connection, this.#podUid);
    }
  }

  #isOneOfMany({ facts: { trace } }: Connection): boolean {
    const isShared = trace?.traceId.endsWith(SHARED_END) === true;
    return (isShared && this.#shared.spend()) || this.#any.spend();
  }
}

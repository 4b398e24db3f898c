import type { Connection } from './connection.ts';
import { MAX_RECENT_CONNECTIONS } from '../limits.ts';
import type { ConnectionRecord } from '../protocol/connections.ts';

/** The last connections that ended on a thread, whatever the access log lets through. */
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

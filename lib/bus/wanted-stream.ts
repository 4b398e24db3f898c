import * as z from 'zod';
import { pause } from '../clock/clock.ts';
import type { Clock } from '../clock/clock.ts';
import { Backoff } from '../clock/backoff.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { blockTimeMs } from './block-time.ts';
import {
  FOLLOW_SLICE_ENTRIES,
  WANTED_BATCH_MAX,
  WANTED_ENTRIES_MAX,
  WANTED_FRESH_MS,
} from './limits.ts';
import { asBusError, whenReady } from './redis-client.ts';
import type { RedisClient } from './redis-client.ts';

/** One entry: names of Address resources that a node-proxy needs (docs/decisions/on-demand.md). */
export const wantedSchema = z.object({
  names: z.array(z.string().min(1)).min(1).max(WANTED_BATCH_MAX),
});

/** The field of an entry that holds it as JSON. */
const FIELD = 'wanted';

const RETRY = { baseMs: 50, maxMs: 2_000 };

/** Adds one entry. The stream keeps a bounded number of entries: who still waits repeats its request. Throws BUS_UNAVAILABLE. */
export async function addWanted(
  client: RedisClient,
  key: string,
  names: readonly string[],
): Promise<void> {
  const text = JSON.stringify({ names: [...names] } satisfies z.input<typeof wantedSchema>);
  try {
    await client.xadd(key, 'MAXLEN', '~', WANTED_ENTRIES_MAX, '*', FIELD, text);
  } catch (error) {
    throw asBusError(error, 'names that are wanted');
  }
}

/** Collaborators of {@link WantedReader}. It owns the client and closes it. */
export interface WantedReaderDeps {
  readonly client: RedisClient;
  readonly key: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Takes the names of one or more entries. */
  readonly take: (names: readonly string[]) => void;
}

/** Follows the requests of all node-proxies until it is closed. Starts with those that somebody may still wait for. */
export class WantedReader {
  readonly #deps: WantedReaderDeps;
  readonly #stop = new AbortController();
  /** Settles when the reader has ended; rejects for a defect of `take`. */
  readonly finished: Promise<void>;
  #id: string | null = null;
  #verified = false;

  constructor(deps: WantedReaderDeps) {
    this.#deps = deps;
    this.finished = this.#run();
  }

  async close(): Promise<void> {
    this.#stop.abort(new Error('reader closed'));
    this.#deps.client.disconnect();
    await Promise.allSettled([this.finished]);
  }

  async #run(): Promise<void> {
    const { client, clock, log } = this.#deps;
    const { signal } = this.#stop;
    const backoff = new Backoff(RETRY);
    while (!signal.aborted) {
      let names: readonly string[];
      try {
        await whenReady(client, signal);
        names = await this.#read();
        backoff.reset();
      } catch (error) {
        if (signal.aborted) return;
        this.#verified = false;
        log.warn({ error: errorText(error) }, 'wanted.reader-interrupted');
        await pause(clock, backoff.next(), signal);
        continue;
      }
      if (names.length > 0) this.#deps.take(names);
    }
  }

  async #read(): Promise<readonly string[]> {
    const { client, key } = this.#deps;
    if (!this.#verified) await this.#verify();
    const reply = await client.xread(
      'COUNT',
      FOLLOW_SLICE_ENTRIES,
      'BLOCK',
      blockTimeMs(),
      'STREAMS',
      key,
      this.#id ?? '0-0',
    );
    const entries = reply?.[0]?.[1] ?? [];
    // Silence proves nothing: the stream may have been deleted, and begun anew with smaller ids.
    if (entries.length === 0) this.#verified = false;
    return entries.flatMap(([id, fields]) => {
      this.#id = id;
      return this.#names(fields);
    });
  }

  /** Finds the place to read on from. Ids begin with the time of Redis, in milliseconds. */
  async #verify(): Promise<void> {
    const { client, key } = this.#deps;
    const [last] = await client.xrevrange(key, '+', '-', 'COUNT', 1);
    const lastMs = timeOf(last?.[0] ?? '0-0');
    if (this.#id === null) this.#id = `${Math.max(0, lastMs - WANTED_FRESH_MS)}-0`;
    else if (lastMs < timeOf(this.#id)) this.#id = '0-0';
    this.#verified = true;
  }

  #names(fields: readonly string[]): readonly string[] {
    const text = fields[fields.indexOf(FIELD) + 1] ?? '';
    try {
      return wantedSchema.parse(JSON.parse(text)).names;
    } catch (error) {
      this.#deps.log.warn({ error: errorText(error) }, 'wanted.entry-unreadable');
      return [];
    }
  }
}

function timeOf(id: string): number {
  return Number(id.split('-')[0]);
}

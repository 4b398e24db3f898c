/** The thread that owns the store's file, so that no sync of the disk holds up the event loop. */
import { Worker } from 'node:worker_threads';
import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';
import type { WireError } from '../../../lib/errors/mesh-error.ts';
import { MAX_MESSAGE_ROWS, STORE_YOUNG_GENERATION_MB } from '../limits.ts';
import type { StoreRow } from './store-row.ts';

/** What the thread is asked; one request at a time. */
export type StoreRequest =
  | { readonly type: 'read'; readonly after: number }
  | {
      readonly type: 'write';
      readonly rows: readonly StoreRow[];
      readonly first: boolean;
      readonly last: boolean;
    }
  | { readonly type: 'close' };

/** What it answers; its first answer says whether the file is open, and whether a commit was dropped. */
export type StoreReply = { readonly value: unknown } | { readonly error: WireError };

/** The near end of the thread. Its calls must wait for each other. */
export class StoreThread {
  readonly #worker: Worker;
  /** Settles once the thread has ended; rejects when nobody asked it to. */
  readonly done: Promise<void>;
  #answer = Promise.withResolvers<unknown>();
  #closing = false;
  #ended: MeshError | null = null;
  #messages = 0;

  private constructor(directory: string) {
    this.#worker = new Worker(new URL('./store.worker.ts', import.meta.url), {
      workerData: directory,
      name: 'store',
      resourceLimits: { maxYoungGenerationSizeMb: STORE_YOUNG_GENERATION_MB },
    });
    this.#worker.on('message', (reply: StoreReply) => {
      if ('error' in reply) this.#answer.reject(MeshError.fromWire(reply.error));
      else this.#answer.resolve(reply.value);
    });
    this.done = new Promise((resolve, reject) => {
      let failure = new MeshError('STATE_UNAVAILABLE', "the store's thread ended");
      this.#worker.on('error', (error) => {
        failure = asMeshError(error, 'STATE_UNAVAILABLE', "the store's thread failed");
      });
      this.#worker.on('exit', () => {
        this.#ended = failure;
        this.#answer.reject(failure);
        if (this.#closing) resolve();
        else reject(failure);
      });
    });
    // The caller that waits for an answer is told too.
    this.done.catch(() => undefined);
  }

  /** Opens the directory; see {@link StoreFile} for what it throws. `dropped` tells of a commit that was cut short. */
  static async open(directory: string): Promise<{ thread: StoreThread; dropped: boolean }> {
    const thread = new StoreThread(directory);
    try {
      return { thread, dropped: (await thread.#answer.promise) as boolean };
    } catch (error) {
      await thread.#end();
      throw error;
    }
  }

  /** Requests sent so far, each of at most {@link MAX_MESSAGE_ROWS} rows. */
  get messages(): number {
    return this.#messages;
  }

  /** All rows, in the order in which their keys came, in parts. Throws STATE_INVALID when one is damaged. */
  async *rows(): AsyncGenerator<readonly StoreRow[]> {
    let after = 0;
    for (;;) {
      const { rows, last } = (await this.#ask({ type: 'read', after })) as {
        rows: StoreRow[];
        last: number;
      };
      if (rows.length === 0) return;
      yield rows;
      after = last;
    }
  }

  /**
   * Writes all rows as one transaction; durable once this resolves. They are made as they are sent, so that the event
   * loop turns after every message. Throws STATE_UNAVAILABLE; nothing of them is kept then.
   */
  async write(rows: Iterable<StoreRow>): Promise<void> {
    let first = true;
    let part: StoreRow[] = [];
    for (const row of rows) {
      if (part.length === MAX_MESSAGE_ROWS) {
        await this.#ask({ type: 'write', rows: part, first, last: false });
        first = false;
        part = [];
      }
      part.push(row);
    }
    if (part.length > 0) await this.#ask({ type: 'write', rows: part, first, last: true });
  }

  /** Closes the file and ends the thread, where it has not ended by itself. */
  async close(): Promise<void> {
    if (this.#ended !== null) return;
    await this.#ask({ type: 'close' });
    await this.#end();
  }

  /** Not left to the thread itself: a port that it closes may lose its last answer. */
  async #end(): Promise<void> {
    this.#closing = true;
    await this.#worker.terminate();
  }

  async #ask(request: StoreRequest): Promise<unknown> {
    if (this.#ended !== null) throw this.#ended;
    this.#messages += 1;
    this.#answer = Promise.withResolvers();
    this.#worker.postMessage(request);
    return this.#answer.promise;
  }
}

/** The thread that owns the store's file, so that a sync of the disk does not hold up the event loop. */
import { Worker } from 'node:worker_threads';
import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';
import type { WireError } from '../../../lib/errors/mesh-error.ts';
import { programPath } from '../../../lib/files/installation.ts';
import { MAX_MESSAGE_ROWS, STORE_YOUNG_GENERATION_MB } from '../limits.ts';
import type { StoreRow } from './store-row.ts';

/** A request to the thread. The thread handles one at a time. */
export type StoreRequest =
  | { readonly type: 'read'; readonly after: number }
  | {
      readonly type: 'write';
      readonly rows: readonly StoreRow[];
      readonly first: boolean;
      readonly last: boolean;
    }
  | { readonly type: 'close' };

/** An answer of the thread. The first one is the result of opening the file: whether a commit was dropped, or an error. */
export type StoreReply = { readonly value: unknown } | { readonly error: WireError };

/** The main thread's end of the store's thread. A call must wait for the call before it. */
export class StoreThread {
  readonly #worker: Worker;
  /** Settles once the thread was closed; rejects when it ended by itself. */
  readonly done: Promise<void>;
  #answer = Promise.withResolvers<unknown>();
  #closing = false;
  #ended: MeshError | null = null;
  #messages = 0;

  private constructor(directory: string) {
    this.#worker = new Worker(programPath('services/control-plane/store/store.worker.ts'), {
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
    // The waiting request is rejected too, so an unobserved rejection here is no error.
    this.done.catch(() => undefined);
  }

  /** Opens the file in a locked directory; throws the errors of {@link StoreFile}. `dropped` is true when an unfinished commit was dropped. */
  static async open(directory: string): Promise<{ thread: StoreThread; dropped: boolean }> {
    const thread = new StoreThread(directory);
    try {
      return { thread, dropped: (await thread.#answer.promise) as boolean };
    } catch (error) {
      await thread.#end();
      throw error;
    }
  }

  /** Number of requests sent, each with at most {@link MAX_MESSAGE_ROWS} rows. */
  get messages(): number {
    return this.#messages;
  }

  /** All rows in parts, in the order in which their keys were first written. Throws STATE_INVALID for a damaged row. */
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
   * Writes all rows as one transaction, which is durable once this resolves. The rows are made as they are sent, so that
   * the event loop turns after every message. Throws STATE_UNAVAILABLE and keeps none of them when a write fails.
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

  /** Closes the file and ends the thread; without effect when the thread has ended by itself. */
  async close(): Promise<void> {
    if (this.#ended !== null) return;
    await this.#ask({ type: 'close' });
    await this.#end();
  }

  /** Ends the thread from outside: a port that the thread itself closes may lose its last answer. */
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

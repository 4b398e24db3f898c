import type { DatabaseSync } from 'node:sqlite';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { present } from '../../../lib/errors/assert.ts';
import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import type { MeshError } from '../../../lib/errors/mesh-error.ts';
import { STORE_IDLE_MS } from '../limits.ts';
import { lockDirectory } from './directory-lock.ts';
import type { StoreRow } from './store-row.ts';
import { StoreThread } from './store-thread.ts';

/**
 * The store on disk. It holds the directory from its start to its end, and runs a {@link StoreThread} for the file while there
 * is something to read or write. A call must wait for the call before it.
 */
export class DiskStore {
  readonly #directory: string;
  readonly #clock: Clock;
  readonly #lock: DatabaseSync;
  readonly #done = Promise.withResolvers<void>();
  #thread: StoreThread | null = null;
  #idle: Timer | null = null;
  /** Settles when the thread before this one has closed the file. */
  #resting: Promise<void> = Promise.resolve();
  #failure: MeshError | null = null;

  private constructor(directory: string, clock: Clock) {
    this.#directory = directory;
    this.#clock = clock;
    this.#lock = lockDirectory(directory);
    // The waiting call is rejected too, so an unobserved rejection here is no error.
    this.#done.promise.catch(() => undefined);
  }

  /**
   * Opens the directory, and makes it when it is missing. `dropped` is true when an unfinished commit was dropped. Throws
   * STATE_UNAVAILABLE when another process holds the directory, and STATE_INVALID when its content is damaged.
   */
  static async open(
    directory: string,
    clock: Clock,
  ): Promise<{ readonly disk: DiskStore; readonly dropped: boolean }> {
    const disk = new DiskStore(directory, clock);
    try {
      const { thread, dropped } = await StoreThread.open(directory);
      disk.#use(thread);
      disk.#restLater();
      return { disk, dropped };
    } catch (error) {
      disk.#lock.close();
      throw error;
    }
  }

  /** Settles once the store is closed; rejects when its thread failed before, after which nothing can be stored. */
  get done(): Promise<void> {
    return this.#done.promise;
  }

  /** Whether the thread runs. */
  get awake(): boolean {
    return this.#thread !== null;
  }

  /** Reads all rows, as {@link StoreThread.rows} does. */
  async *rows(): AsyncGenerator<readonly StoreRow[]> {
    const thread = await this.#wake();
    try {
      yield* thread.rows();
    } finally {
      this.#restLater();
    }
  }

  /** Writes all rows as one transaction, as {@link StoreThread.write} does. */
  async write(rows: Iterable<StoreRow>): Promise<void> {
    const thread = await this.#wake();
    try {
      await thread.write(rows);
    } finally {
      this.#restLater();
    }
  }

  /** Closes the file and unlocks the directory; without effect when that has happened. */
  async close(): Promise<void> {
    this.#idle?.cancel();
    try {
      await this.#resting;
      await this.#thread?.close();
    } finally {
      if (this.#lock.isOpen) this.#lock.close();
    }
    this.#done.resolve();
  }

  async #wake(): Promise<StoreThread> {
    this.#idle?.cancel();
    await this.#resting;
    if (this.#failure !== null) throw this.#failure;
    if (this.#thread !== null) return this.#thread;
    try {
      return this.#use((await StoreThread.open(this.#directory)).thread);
    } catch (error) {
      throw this.#fail(error);
    }
  }

  #use(thread: StoreThread): StoreThread {
    this.#thread = thread;
    thread.done.catch((error: unknown) => this.#fail(error));
    return thread;
  }

  #restLater(): void {
    this.#idle = this.#clock.after(STORE_IDLE_MS, () => {
      const thread = present(this.#thread, 'it ran when the timer began');
      this.#thread = null;
      this.#resting = thread.close().catch((error: unknown) => void this.#fail(error));
    });
  }

  #fail(error: unknown): MeshError {
    this.#failure ??= asMeshError(error, 'STATE_UNAVAILABLE');
    this.#done.reject(this.#failure);
    return this.#failure;
  }
}

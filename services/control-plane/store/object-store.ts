/** Owns the mesh's objects. Transactions run one after another and are durable before listeners are called. */
import { TimeSlice } from '../../../lib/async/time-slice.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import {
  MAX_GROUP_COMMIT,
  MAX_MESSAGE_ROWS,
  MAX_OBJECTS,
  MAX_WAITING_TRANSACTIONS,
  SLICE_MS,
} from '../limits.ts';
import { keyOf } from '../manifests/kinds.ts';
import type { KubeObject } from '../manifests/kinds.ts';
import { DiskStore } from './disk-store.ts';
import { Draft, CommittedState } from './state.ts';
import type { StateChange, StateView } from './state.ts';
import { changeOf, rowOf } from './store-row.ts';

/** An object before and after a transaction; null where it did not exist. */
export interface ObjectChange {
  readonly before: KubeObject | null;
  readonly after: KubeObject | null;
}

/**
 * Receives the changes of a durable transaction, in parts of at most {@link MAX_MESSAGE_ROWS} objects with a turn of the
 * event loop in between. Must not throw.
 */
export type StoreListener = (changes: readonly ObjectChange[]) => void;

interface Waiting {
  /** Runs the plan on a draft; returns how to settle its caller. */
  run(draft: Draft): Promise<() => void>;
  reject(error: unknown): void;
}

/** Holds the objects in memory, and on disk by a {@link DiskStore}. */
export class ObjectStore {
  readonly #disk: DiskStore;
  readonly #state: CommittedState;
  readonly #waiting: Waiting[] = [];
  readonly #listeners = new Set<StoreListener>();
  #work: Promise<void> | null = null;
  #publishing = false;
  #closed = false;

  private constructor(disk: DiskStore, state: CommittedState) {
    this.#disk = disk;
    this.#state = state;
  }

  /**
   * Loads the objects of the directory. Throws STATE_UNAVAILABLE when another process holds the directory, and
   * STATE_INVALID when its content is damaged.
   */
  static async open(
    directory: string,
    { log, clock }: { readonly log: Logger; readonly clock: Clock },
  ): Promise<ObjectStore> {
    const { disk, dropped } = await DiskStore.open(directory, clock);
    if (dropped) log.warn({ directory }, 'store.unfinished-write-dropped');
    const state = new CommittedState();
    try {
      for await (const rows of disk.rows()) {
        for (const row of rows) state.apply(changeOf(row));
      }
    } catch (error) {
      await disk.close();
      throw error;
    }
    log.info({ objects: state.size }, 'store.loaded');
    return new ObjectStore(disk, state);
  }

  /** The committed state, for reading. */
  get state(): CommittedState {
    return this.#state;
  }

  /** Number of waiting transactions. */
  get depth(): number {
    return this.#waiting.length;
  }

  /** True while the state holds only a part of a transaction, which happens in the turns between its parts. */
  get publishing(): boolean {
    return this.#publishing;
  }

  /** Settles once the store is closed; rejects when it failed before, after which nothing can be stored. */
  get done(): Promise<void> {
    return this.#disk.done;
  }

  /** Calls `listener` after each commit, in order; the result unsubscribes. */
  onCommit(listener: StoreListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Runs `plan` on a draft and makes its changes durable. An error of `plan` rejects the call and leaves the state
   * unchanged. No other plan runs meanwhile, so a long plan may let the event loop turn. Throws STATE_UNAVAILABLE when the
   * disk refuses the write or too many transactions wait.
   */
  transact<T>(plan: (draft: Draft) => T | Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#closed || this.#waiting.length >= MAX_WAITING_TRANSACTIONS) {
        const why = this.#closed ? 'the store is closed' : 'too many changes wait for the store';
        reject(new MeshError('STATE_UNAVAILABLE', why));
        return;
      }
      const run = async (draft: Draft): Promise<() => void> => {
        const value = await plan(draft);
        return () => resolve(value);
      };
      this.#waiting.push({ run, reject });
      this.#work ??= this.#drain();
    });
  }

  /** Waits for the accepted transactions, then closes the file. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    while (this.#work !== null) await this.#work;
    await this.#disk.close();
  }

  async #drain(): Promise<void> {
    // Lets the callers of one turn share one sync.
    await Promise.resolve();
    try {
      while (this.#waiting.length > 0) {
        await this.#commit(this.#waiting.splice(0, MAX_GROUP_COMMIT));
      }
    } finally {
      // Reset in the turn of the last check, so that a later caller starts a new run.
      this.#work = null;
    }
  }

  async #commit(group: readonly Waiting[]): Promise<void> {
    const planned: { readonly draft: Draft; settle(): void; reject(error: unknown): void }[] = [];
    for (const { run, reject } of group) {
      // Based on the previous draft of the group, which becomes durable in the same write.
      const base: StateView = planned.at(-1)?.draft ?? this.#state;
      const draft = new Draft(base);
      try {
        const settle = await run(draft);
        refuseOverflow(base, draft);
        planned.push({ draft, settle, reject });
      } catch (error) {
        reject(error);
      }
    }
    try {
      const drafts = planned.map(({ draft }) => draft);
      if (drafts.some(({ changes }) => changes.length > 0)) await this.#disk.write(rowsOf(drafts));
    } catch (error) {
      for (const { reject } of planned) reject(error);
      return;
    }
    for (const { draft, settle } of planned) {
      this.#publishing = true;
      try {
        await this.#publish(draft.changes);
      } finally {
        this.#publishing = false;
      }
      settle();
    }
  }

  async #publish(changes: readonly StateChange[]): Promise<void> {
    const slice = new TimeSlice(SLICE_MS);
    for (let start = 0; start < changes.length; start += MAX_MESSAGE_ROWS) {
      const part = changes
        .slice(start, start + MAX_MESSAGE_ROWS)
        .map((change) => this.#apply(change))
        .filter(({ before, after }) => before !== after);
      if (part.length > 0) for (const listener of this.#listeners) listener(part);
      await slice.breathe();
    }
  }

  #apply(change: StateChange): ObjectChange {
    const key =
      change.op === 'put' ? keyOf(change.object) : change.op === 'delete' ? change.key : '';
    const before = this.#state.get(key)?.object ?? null;
    this.#state.apply(change);
    return { before, after: change.op === 'put' ? change.object : null };
  }
}

function* rowsOf(drafts: readonly Draft[]): Iterable<ReturnType<typeof rowOf>> {
  for (const draft of drafts) for (const change of draft.changes) yield rowOf(change);
}

function refuseOverflow(base: StateView, draft: Draft): void {
  if (draft.size > base.size && draft.size > MAX_OBJECTS) {
    throw new MeshError('STATE_CONFLICT', `the mesh may hold at most ${MAX_OBJECTS} objects`);
  }
}

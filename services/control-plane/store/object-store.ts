/** The one owner of the mesh's objects: transactions one after another, durable before anyone hears of them. */
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import {
  JOURNAL_FOLD_BYTES,
  MAX_GROUP_COMMIT,
  MAX_OBJECTS,
  MAX_WAITING_TRANSACTIONS,
} from '../limits.ts';
import { keyOf } from '../manifests/kinds.ts';
import type { KubeObject } from '../manifests/kinds.ts';
import { Journal } from './journal.ts';
import { Draft, MeshState } from './state.ts';
import type { StateChange } from './state.ts';

/** An object before and after a transaction; null where it did not exist. */
export interface ObjectChange {
  readonly before: KubeObject | null;
  readonly after: KubeObject | null;
}

/** Told after a transaction is durable. Must not throw. */
export type StoreListener = (changes: readonly ObjectChange[]) => void;

interface Waiting {
  /** Runs the plan on a draft; returns how to settle its caller. */
  run(draft: Draft): { changes: readonly StateChange[]; settle: (failure: unknown) => void };
  reject(error: unknown): void;
}

/** Objects with their history on disk. */
export class ObjectStore {
  readonly #journal: Journal;
  readonly #state: MeshState;
  readonly #log: Logger;
  readonly #waiting: Waiting[] = [];
  readonly #listeners = new Set<StoreListener>();
  #work: Promise<void> | null = null;
  #closed = false;

  private constructor(journal: Journal, state: MeshState, log: Logger) {
    this.#journal = journal;
    this.#state = state;
    this.#log = log;
  }

  /** Loads what the directory holds. Throws STATE_INVALID when it is damaged. */
  static async open(directory: string, log: Logger): Promise<ObjectStore> {
    const { journal, changes, tornBytes } = await Journal.open(directory);
    const state = new MeshState();
    for (const change of changes) state.apply(change);
    if (tornBytes > 0) log.warn({ bytes: tornBytes }, 'store.unfinished-write-dropped');
    log.info({ objects: state.size }, 'store.loaded');
    return new ObjectStore(journal, state, log);
  }

  /** The committed state, for reading. */
  get state(): MeshState {
    return this.#state;
  }

  /** Transactions that wait. */
  get depth(): number {
    return this.#waiting.length;
  }

  /** Calls `listener` after each commit, in order; the result unsubscribes. */
  onCommit(listener: StoreListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Runs `plan` on a draft and makes its changes durable. What `plan` throws rejects the call and leaves the
   * state as it was. Throws STATE_UNAVAILABLE when the disk refuses or too many transactions wait.
   */
  transact<T>(plan: (draft: Draft) => T): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#closed || this.#waiting.length >= MAX_WAITING_TRANSACTIONS) {
        const why = this.#closed ? 'the store is closed' : 'too many changes wait for the store';
        reject(new MeshError('STATE_UNAVAILABLE', why));
        return;
      }
      this.#waiting.push({
        run: (draft) => {
          const own = new Draft(draft);
          const value = plan(own);
          const settle = (failure: unknown): void => {
            if (failure === null) resolve(value);
            else reject(failure);
          };
          return { changes: own.changes, settle };
        },
        reject,
      });
      this.#work ??= this.#drain();
    });
  }

  /** Waits for what is in hand, then closes the files. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    while (this.#work !== null) await this.#work;
    await this.#journal.close();
  }

  async #drain(): Promise<void> {
    // Lets callers of the same turn join one sync.
    await Promise.resolve();
    try {
      while (this.#waiting.length > 0) {
        await this.#commit(this.#waiting.splice(0, MAX_GROUP_COMMIT));
        if (this.#journal.length > JOURNAL_FOLD_BYTES) await this.#fold();
      }
    } finally {
      // In the same turn as the last look: whoever comes after it starts anew instead of waiting for nobody.
      this.#work = null;
    }
  }

  async #commit(group: readonly Waiting[]): Promise<void> {
    const draft = new Draft(this.#state);
    const planned: { changes: readonly StateChange[]; settle: (failure: unknown) => void }[] = [];
    for (const waiting of group) {
      try {
        const plan = waiting.run(draft);
        this.#refuseOverflow(plan.changes);
        draft.merge(plan.changes);
        planned.push(plan);
      } catch (error) {
        waiting.reject(error);
      }
    }
    const transactions = planned.map(({ changes }) => changes).filter(({ length }) => length > 0);
    try {
      if (transactions.length > 0) await this.#journal.append(transactions);
    } catch (error) {
      for (const { settle } of planned) settle(error);
      return;
    }
    for (const { changes, settle } of planned) {
      this.#publish(changes);
      settle(null);
    }
  }

  #publish(changes: readonly StateChange[]): void {
    const told: ObjectChange[] = [];
    for (const change of changes) {
      const key =
        change.op === 'put' ? keyOf(change.object) : change.op === 'delete' ? change.key : null;
      const before = key === null ? null : (this.#state.get(key)?.object ?? null);
      this.#state.apply(change);
      const after = change.op === 'put' ? change.object : null;
      if (key !== null && before !== after) told.push({ before, after });
    }
    if (told.length === 0) return;
    for (const listener of this.#listeners) listener(told);
  }

  #refuseOverflow(changes: readonly StateChange[]): void {
    const added = changes.filter(
      (change) => change.op === 'put' && this.#state.get(keyOf(change.object)) === undefined,
    ).length;
    if (added > 0 && this.#state.size + added > MAX_OBJECTS) {
      throw new MeshError('STATE_CONFLICT', `the mesh may hold at most ${MAX_OBJECTS} objects`);
    }
  }

  async #fold(): Promise<void> {
    try {
      await this.#journal.fold(this.#state.contents());
      this.#log.info({ objects: this.#state.size }, 'store.folded');
    } catch (error) {
      // The journal still holds everything; the next commit tries again.
      this.#log.error({ error: errorText(error) }, 'store.fold-failed');
    }
  }
}

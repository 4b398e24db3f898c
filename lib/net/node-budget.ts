/** Most threads of a process at a time, including those that replace others. */
export const MAX_BUDGET_THREADS = 256;

/** Amounts that all threads of the process share. */
export type Budgeted = 'connections' | 'handshakes';

/** Shared counts: the amounts above, KiB held for connections, and the accounts that share these. */
export type Counted = Budgeted | 'heldKib' | 'accounts';

/** Limits of the whole process. */
export type NodeLimits = Readonly<Record<Budgeted, number>>;

const FIELDS: readonly Counted[] = ['connections', 'handshakes', 'heldKib', 'accounts'];

/** Slot behind the counts: one more than the highest thread so far. It bounds the slots that a sum reads. */
const THREADS_SLOT = MAX_BUDGET_THREADS * FIELDS.length;

/** Memory for the counts of every thread, shared by all threads. */
export function newBudgetMemory(): SharedArrayBuffer {
  return new SharedArrayBuffer((THREADS_SLOT + 1) * Int32Array.BYTES_PER_ELEMENT);
}

/** Clears the counts of a thread that is gone, since everything it held is gone too. */
export function clearBudget(memory: SharedArrayBuffer, thread: number): void {
  const counts = new Int32Array(memory);
  for (const [index] of FIELDS.entries()) Atomics.store(counts, slot(thread, index), 0);
}

/**
 * Counts the share that one thread has taken of the process's amounts. A thread writes only its own counts, so that those of a dead
 * thread can be given back. The limits hold for the sum of all threads.
 */
export class NodeBudget {
  readonly #counts: Int32Array<SharedArrayBuffer>;
  readonly #thread: number;
  readonly #limits: NodeLimits;

  constructor(memory: SharedArrayBuffer, thread: number, limits: NodeLimits) {
    this.#counts = new Int32Array(memory);
    this.#thread = thread;
    this.#limits = limits;
    clearBudget(memory, thread);
    for (let known = 0; known <= thread;) {
      known = Atomics.compareExchange(this.#counts, THREADS_SLOT, known, thread + 1);
    }
  }

  /** Takes one; false when the process is at its limit. Threads that ask at the same time may exceed the limit by one each. */
  take(what: Budgeted): boolean {
    if (this.used(what) >= this.#limits[what]) return false;
    Atomics.add(this.#counts, this.#own(what), 1);
    return true;
  }

  /** Gives one back. */
  give(what: Budgeted): void {
    this.add(what, -1);
  }

  /** Adds to a count without a check of the limits; a negative number subtracts. */
  add(what: Counted, by: number): void {
    Atomics.add(this.#counts, this.#own(what), by);
  }

  /** The sum over all threads. */
  used(what: Counted): number {
    let sum = 0;
    const threads = Atomics.load(this.#counts, THREADS_SLOT);
    for (let thread = 0; thread < threads; thread += 1) {
      sum += Atomics.load(this.#counts, slot(thread, FIELDS.indexOf(what)));
    }
    return sum;
  }

  /** The count of this thread. */
  own(what: Counted): number {
    return Atomics.load(this.#counts, this.#own(what));
  }

  #own(what: Counted): number {
    return slot(this.#thread, FIELDS.indexOf(what));
  }
}

function slot(thread: number, field: number): number {
  return thread * FIELDS.length + field;
}

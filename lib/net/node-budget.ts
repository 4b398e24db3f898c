/** Threads that a process may have beside each other, with room for those that replace others. */
export const MAX_BUDGET_THREADS = 256;

/** What all threads of the process take from one common amount. */
export type Budgeted = 'connections' | 'handshakes';

/** What they tell each other besides: KiB held for connections, and the accounts that these are divided among. */
export type Counted = Budgeted | 'heldKib' | 'accounts';

/** Amounts of the whole process. */
export type NodeLimits = Readonly<Record<Budgeted, number>>;

const FIELDS: readonly Counted[] = ['connections', 'handshakes', 'heldKib', 'accounts'];

/** Behind the counts: one more than the highest thread so far, so that a sum is not over all there might be. */
const THREADS_SLOT = MAX_BUDGET_THREADS * FIELDS.length;

/** Memory for the counts of every thread, to be shared by all of them. */
export function newBudgetMemory(): SharedArrayBuffer {
  return new SharedArrayBuffer((THREADS_SLOT + 1) * Int32Array.BYTES_PER_ELEMENT);
}

/** Forgets what a thread had taken: it is gone, and with it what it held. */
export function clearBudget(memory: SharedArrayBuffer, thread: number): void {
  const counts = new Int32Array(memory);
  for (const [index] of FIELDS.entries()) Atomics.store(counts, slot(thread, index), 0);
}

/**
 * The part of the process's amounts that one thread has taken. Each thread writes its own counts alone, so that those of a
 * thread that died can be given back; the sum is what the limits hold for.
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

  /** Takes one; false when the process has as many as it may have. Threads that ask at once may exceed it by one each. */
  take(what: Budgeted): boolean {
    if (this.used(what) >= this.#limits[what]) return false;
    Atomics.add(this.#counts, this.#own(what), 1);
    return true;
  }

  /** Gives one back. */
  give(what: Budgeted): void {
    this.add(what, -1);
  }

  /** Counts so many more, or fewer, whatever the limits are. */
  add(what: Counted, by: number): void {
    Atomics.add(this.#counts, this.#own(what), by);
  }

  /** What all threads have taken. */
  used(what: Counted): number {
    let sum = 0;
    const threads = Atomics.load(this.#counts, THREADS_SLOT);
    for (let thread = 0; thread < threads; thread += 1) {
      sum += Atomics.load(this.#counts, slot(thread, FIELDS.indexOf(what)));
    }
    return sum;
  }

  /** What this thread has taken. */
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

/**
 * Accounts for the bytes that a process holds in memory for connections: received bytes without a reader yet, and bytes that wait to
 * be sent. A pod that holds too much is pressed: it takes in less until its sum has fallen. Only tunnels whose peers do not
 * cooperate are ended (docs/decisions/budgets.md).
 */
import type { Writable } from 'node:stream';
import type { Clock, Timer } from '../clock/clock.ts';
import type { NodeBudget } from './node-budget.ts';

/** A tunnel whose peer has not acknowledged smaller windows yet, and may still send more than they allow. */
export interface Debtor {
  /** The received bytes held for it. */
  holds(): number;
  /** Ends it, so that it releases the bytes it holds, now or soon. */
  evict(): void;
}

/** The account of the bytes that one pod's connections hold. */
export interface ByteAccount {
  /** Too much is held: a connection may take in only what keeps it going. */
  readonly pressed: boolean;
  /** Received bytes have reached the limit: nothing may begin that would bring more. */
  readonly full: boolean;
  /** Bytes that may still arrive between the start of pressure and `full`. */
  readonly headroom: number;
  /** Adds held bytes; a negative number subtracts. */
  charge(bytes: number): void;
  /** Like `charge`, for bytes that peers sent. */
  receive(bytes: number): void;
  /** Lets {@link relieve} end `debtor` until the returned function is called. */
  owe(debtor: Debtor): () => void;
  /** Ends debtors, the largest first, while received bytes exceed the limit. Call it only where any of them may end. */
  relieve(): void;
  /** Calls `listener` on each change of `pressed` until the returned function is called. */
  onPressure(listener: () => void): () => void;
}

/** The account of connections that have none. */
export const UNACCOUNTED: ByteAccount = {
  pressed: false,
  full: false,
  headroom: Infinity,
  charge() {},
  receive() {},
  owe: () => () => {},
  relieve() {},
  onPressure: () => () => {},
};

/** Accounts for bytes that wait in a writable whose peer does not read. It ignores bytes that leave at once. */
export class QueuedBytes {
  readonly #to: Writable;
  readonly #account: Pick<ByteAccount, 'charge'>;
  #charged = 0;

  constructor(to: Writable, account: Pick<ByteAccount, 'charge'>) {
    this.#to = to;
    this.#account = account;
  }

  /** Call it after writes and on `drain`. A writable below its high-water mark counts as empty, since it emits no `drain`. */
  update(): void {
    const { writableLength, writableHighWaterMark } = this.#to;
    this.#set(writableLength >= writableHighWaterMark ? writableLength : 0);
  }

  /** The writable is closed. */
  close(): void {
    this.#set(0);
  }

  #set(bytes: number): void {
    if (bytes === this.#charged) return;
    this.#account.charge(bytes - this.#charged);
    this.#charged = bytes;
  }
}

/** Most bytes that may be held. */
export interface HeldLimits {
  readonly process: number;
  readonly perPod: number;
}

/**
 * Share of its limit at which a pod is pressed. Its peers are told then; the bytes they send until they take note must still find
 * room.
 */
const PRESS_SHARE = 1 / 2;

/** Share of the pressing mark at which pressure ends. The gap keeps a pod from changing back and forth. */
const EASE_SHARE = 3 / 4;

/** Least bytes of a debtor that is ended: a peer may send as much before it knows of any window but HTTP/2's initial one. */
const EVICTED_FROM_BYTES = 65_536;

/** Interval of checks on a pressed pod, and its shortest time of pressure: each change costs every tunnel a frame. */
export const PRESSURE_CHECK_MS = 250;

/** Largest difference between a thread's sum and the sum that other threads see. */
const PUBLISH_BYTES = 262_144;

const KIB = 1_024;

/** The bytes that one thread holds, published to the other threads. */
export class HeldBytes {
  readonly #budget: NodeBudget;
  readonly #limits: HeldLimits;
  readonly #clock: Clock;
  #bytes = 0;
  #published = 0;
  /** Bytes that a pod may hold while the process holds too much: an equal part. */
  #allowance = Infinity;
  #pressed = 0;
  #pressures = 0;

  constructor(budget: NodeBudget, limits: HeldLimits, clock: Clock) {
    this.#budget = budget;
    this.#limits = limits;
    this.#clock = clock;
  }

  /** Bytes that this thread holds now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Pods pressed now, and the count of times a pod became pressed. */
  get pressure(): { readonly now: number; readonly total: number } {
    return { now: this.#pressed, total: this.#pressures };
  }

  /** Opens the account of a pod; close it with the pod. */
  open(): PodBytes {
    this.#budget.add('accounts', 1);
    return new PodBytes({
      clock: this.#clock,
      limit: this.#limits.perPod,
      allowance: () => this.#allowance,
      changed: (bytes) => this.#change(bytes),
      refresh: () => this.#publish(),
      pressing: (by) => {
        this.#pressed += by;
        this.#pressures += Math.max(0, by);
      },
      closed: () => this.#budget.add('accounts', -1),
    });
  }

  #change(bytes: number): void {
    this.#bytes += bytes;
    if (Math.abs(this.#bytes - this.#published) >= PUBLISH_BYTES) this.#publish();
  }

  #publish(): void {
    this.#budget.add('heldKib', Math.round(this.#bytes / KIB) - this.#budget.own('heldKib'));
    this.#published = this.#bytes;
    const sum = this.#budget.used('heldKib') * KIB;
    const { process } = this.#limits;
    const isOver = sum > (this.#allowance === Infinity ? process : process * EASE_SHARE);
    // If the sum is above the limit, at least one account is above its equal part.
    this.#allowance = isOver ? process / Math.max(1, this.#budget.used('accounts')) : Infinity;
  }
}

/** The part of its thread that a pod's account needs. */
interface Ledger {
  readonly clock: Clock;
  readonly limit: number;
  allowance(): number;
  changed(bytes: number): void;
  refresh(): void;
  pressing(by: 1 | -1): void;
  closed(): void;
}

/** The bytes that one pod holds on one thread. */
export class PodBytes implements ByteAccount {
  readonly #ledger: Ledger;
  readonly #listeners = new Set<() => void>();
  readonly #debtors = new Set<Debtor>();
  /** Debtors that were ended and still hold bytes: a native thread drops them a little later. */
  readonly #leaving = new Set<Debtor>();
  #limit: number;
  #bytes = 0;
  /** The part of `#bytes` that peers sent. */
  #received = 0;
  #pressed = false;
  #timer: Timer | null = null;
  #closed = false;

  /** Made by {@link HeldBytes.open}. */
  constructor(ledger: Ledger) {
    this.#ledger = ledger;
    this.#limit = ledger.limit;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get pressed(): boolean {
    return this.#pressed;
  }

  get full(): boolean {
    return this.#received >= this.#limit;
  }

  get headroom(): number {
    return this.#limit * (1 - PRESS_SHARE);
  }

  charge(bytes: number): void {
    if (this.#closed) return;
    this.#bytes += bytes;
    this.#ledger.changed(bytes);
    if (bytes > 0 && !this.#pressed && this.#bytes > this.#mark) this.#consider();
  }

  receive(bytes: number): void {
    this.#received += bytes;
    this.charge(bytes);
  }

  owe(debtor: Debtor): () => void {
    this.#debtors.add(debtor);
    return () => this.#debtors.delete(debtor);
  }

  relieve(): void {
    while (this.#received - this.#leavingBytes > this.#limit) {
      let largest: Debtor | null = null;
      for (const debtor of this.#debtors) {
        if (debtor.holds() > (largest?.holds() ?? EVICTED_FROM_BYTES)) largest = debtor;
      }
      if (largest === null) return;
      // Each debtor is ended once, so that the loop ends.
      this.#debtors.delete(largest);
      this.#leaving.add(largest);
      largest.evict();
    }
  }

  onPressure(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Divides the limit among the threads that serve the pod. */
  divide(threads: number): void {
    this.#limit = this.#ledger.limit / threads;
  }

  /** Closes the account of a pod that is gone, and releases all it held. */
  close(): void {
    if (this.#closed) return;
    this.charge(-this.#bytes);
    this.#closed = true;
    this.#listeners.clear();
    this.#debtors.clear();
    this.#leaving.clear();
    this.#timer?.cancel();
    if (this.#pressed) this.#ledger.pressing(-1);
    this.#pressed = false;
    this.#ledger.closed();
  }

  get #leavingBytes(): number {
    let sum = 0;
    for (const debtor of this.#leaving) {
      const holds = debtor.holds();
      sum += holds;
      if (holds === 0) this.#leaving.delete(debtor);
    }
    return sum;
  }

  get #mark(): number {
    return Math.min(this.#limit * PRESS_SHARE, this.#ledger.allowance());
  }

  #consider(): void {
    // The other threads may have released bytes meanwhile.
    this.#ledger.refresh();
    if (this.#bytes > this.#mark) this.#turn(true);
  }

  #turn(pressed: boolean): void {
    this.#pressed = pressed;
    this.#ledger.pressing(pressed ? 1 : -1);
    this.#timer?.cancel();
    this.#timer = pressed ? this.#ledger.clock.every(PRESSURE_CHECK_MS, this.#check) : null;
    for (const listener of this.#listeners) listener();
  }

  readonly #check = (): void => {
    this.#ledger.refresh();
    if (this.#bytes <= this.#mark * EASE_SHARE) this.#turn(false);
  };
}

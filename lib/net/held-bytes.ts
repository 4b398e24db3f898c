/**
 * Bytes that a process holds in its own memory for connections: what came and has no reader yet, what waits to be sent. Whoever
 * holds too much is pressed: it takes in less, until it has fallen. Nothing is cut but peers that do not take part
 * (docs/decisions/budgets.md).
 */
import type { Writable } from 'node:stream';
import type { Clock, Timer } from '../clock/clock.ts';
import type { NodeBudget } from './node-budget.ts';

/** A tunnel whose peer may still send more than it should: it has not taken note of smaller windows. */
export interface Debtor {
  /** Received bytes that are held for it. */
  holds(): number;
  /** Ends it, and gives back what it holds. */
  evict(): void;
}

/** Where the connections of one pod account for what they hold. */
export interface ByteAccount {
  /** Too much is held: take in no more than it needs to go on. */
  readonly pressed: boolean;
  /** As much has come as may be held: nothing is begun that would bring more. */
  readonly full: boolean;
  /** What may come, bytes, from the moment of pressure on until that is so. */
  readonly headroom: number;
  /** More bytes are held, or fewer. */
  charge(bytes: number): void;
  /** The same, of bytes that peers sent. */
  receive(bytes: number): void;
  /** `debtor` may be ended by {@link relieve} until the answer is called. */
  owe(debtor: Debtor): () => void;
  /** Ends debtors, the largest first, while more has come than may be held. To be called where any of them may end. */
  relieve(): void;
  /** Calls `listener` each time `pressed` has changed, until the answer is called. */
  onPressure(listener: () => void): () => void;
}

/** For connections that nobody accounts for. */
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

/** Accounts for what waits in a writable whose peer does not read; what goes at once is not worth it. */
export class QueuedBytes {
  readonly #to: Writable;
  readonly #account: Pick<ByteAccount, 'charge'>;
  #charged = 0;

  constructor(to: Writable, account: Pick<ByteAccount, 'charge'>) {
    this.#to = to;
    this.#account = account;
  }

  /** To be called after writes, and when the writable has drained: below its mark it does not tell. */
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

/** Bytes. */
export interface HeldLimits {
  readonly process: number;
  readonly perPod: number;
}

/**
 * A pod that holds this part of its limit is pressed: a peer is told then, and what it has under way until it takes note must
 * still find room.
 */
const PRESS_SHARE = 1 / 2;

/** A pressed pod that has fallen to this part of what it was pressed at is pressed no more: it must not go to and fro. */
const EASE_SHARE = 3 / 4;

/** A debtor that holds less is not ended: a peer that knows of no window but HTTP/2's first may have sent as much. */
const EVICTED_FROM_BYTES = 65_536;

/** How often a pressed pod is looked at, which is also how long it is pressed at least: every change costs each tunnel a frame. */
export const PRESSURE_CHECK_MS = 250;

/** How far a thread's sum may be from what the other threads know of it. */
const PUBLISH_BYTES = 262_144;

const KIB = 1_024;

/** What one thread holds, in the sight of the others. */
export class HeldBytes {
  readonly #budget: NodeBudget;
  readonly #limits: HeldLimits;
  readonly #clock: Clock;
  #bytes = 0;
  #published = 0;
  /** What a pod may hold while the process holds too much: an equal part. */
  #allowance = Infinity;
  #pressed = 0;
  #pressures = 0;

  constructor(budget: NodeBudget, limits: HeldLimits, clock: Clock) {
    this.#budget = budget;
    this.#limits = limits;
    this.#clock = clock;
  }

  /** Held by this thread now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Its pods that are pressed now, and how often one came to be. */
  get pressure(): { readonly now: number; readonly total: number } {
    return { now: this.#pressed, total: this.#pressures };
  }

  /** The account of a pod, to be closed with it. */
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
    // Where the sum is above the limit, one of them is above its equal part.
    this.#allowance = isOver ? process / Math.max(1, this.#budget.used('accounts')) : Infinity;
  }
}

/** What a pod's account needs of its thread. */
interface Ledger {
  readonly clock: Clock;
  readonly limit: number;
  allowance(): number;
  changed(bytes: number): void;
  refresh(): void;
  pressing(by: 1 | -1): void;
  closed(): void;
}

/** What one pod holds on one thread. */
export class PodBytes implements ByteAccount {
  readonly #ledger: Ledger;
  readonly #listeners = new Set<() => void>();
  readonly #debtors = new Set<Debtor>();
  #limit: number;
  #bytes = 0;
  /** Of these, what peers sent. */
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
    while (this.#received > this.#limit) {
      let largest: Debtor | null = null;
      for (const debtor of this.#debtors) {
        if (debtor.holds() > (largest?.holds() ?? EVICTED_FROM_BYTES)) largest = debtor;
      }
      if (largest === null) return;
      // Each is ended once, so that this comes to an end.
      this.#debtors.delete(largest);
      largest.evict();
    }
  }

  onPressure(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The pod is served by so many threads: each may hold its part. */
  divide(threads: number): void {
    this.#limit = this.#ledger.limit / threads;
  }

  /** The pod is gone, and what it held. */
  close(): void {
    if (this.#closed) return;
    this.charge(-this.#bytes);
    this.#closed = true;
    this.#listeners.clear();
    this.#debtors.clear();
    this.#timer?.cancel();
    if (this.#pressed) this.#ledger.pressing(-1);
    this.#pressed = false;
    this.#ledger.closed();
  }

  get #mark(): number {
    return Math.min(this.#limit * PRESS_SHARE, this.#ledger.allowance());
  }

  #consider(): void {
    // The other threads may have let go meanwhile.
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

import type { Timer } from '../../clock/clock.ts';
import type { SessionTimers } from '../session-timers.ts';
import { pingFrame } from './frames.ts';

/** What keeping a tunnel alive needs of it. */
export interface PingDeps {
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly timers: SessionTimers;
  readonly send: (frame: Buffer) => void;
  readonly onAnswer: () => void;
  readonly onTimeout: () => void;
}

/** PINGs of ours: one every interval (docs/spec/hbone.md §8), and those that ask how far the peer has read. */
export class Pings {
  readonly #deps: PingDeps;
  /** By payload. */
  readonly #waiting = new Map<bigint, { timeout: Timer; answered: () => void }>();
  #sent = 0n;

  constructor(deps: PingDeps) {
    this.#deps = deps;
    this.#schedule();
  }

  /** Calls `answered` when the peer has read everything up to now. */
  ask(answered: () => void): void {
    const { timers, timeoutMs, onTimeout, send } = this.#deps;
    this.#sent += 1n;
    const payload = Buffer.alloc(8);
    payload.writeBigUInt64BE(this.#sent);
    this.#waiting.set(this.#sent, { timeout: timers.afterInput(timeoutMs, onTimeout), answered });
    send(pingFrame(payload, false));
  }

  /** Takes an answer; one that nobody asked for means nothing. */
  acknowledged(payload: Buffer): void {
    const key = payload.readBigUInt64BE();
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) return;
    this.#waiting.delete(key);
    waiting.timeout.cancel();
    this.#deps.onAnswer();
    waiting.answered();
  }

  #schedule(): void {
    this.#deps.timers.after(this.#deps.intervalMs, () => this.ask(() => this.#schedule()));
  }
}

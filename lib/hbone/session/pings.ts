import type { Timer } from '../../clock/clock.ts';
import type { SessionTimers } from '../session-timers.ts';
import { pingFrame } from './frames.ts';

/** The times and callbacks of {@link Pings}. */
export interface PingDeps {
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly timers: SessionTimers;
  readonly send: (frame: Buffer) => void;
  readonly onAnswer: () => void;
  readonly onTimeout: () => void;
}

/** Sends PINGs: one every interval (docs/spec/hbone.md §8), and one whenever the tunnel must know how far the peer has read. */
export class Pings {
  readonly #deps: PingDeps;
  /** Unanswered PINGs by payload. */
  readonly #waiting = new Map<bigint, { timeout: Timer; answered: () => void }>();
  #sent = 0n;

  constructor(deps: PingDeps) {
    this.#deps = deps;
    this.#schedule();
  }

  /** Sends a PING and calls `answered` when the peer has read everything sent up to now. */
  ask(answered: () => void): void {
    const { timers, timeoutMs, onTimeout, send } = this.#deps;
    this.#sent += 1n;
    const payload = Buffer.alloc(8);
    payload.writeBigUInt64BE(this.#sent);
    this.#waiting.set(this.#sent, { timeout: timers.afterInput(timeoutMs, onTimeout), answered });
    send(pingFrame(payload, false));
  }

  /** Takes an answer and ignores one without a PING. */
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

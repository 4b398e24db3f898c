/** Finds pods whose proxy confirmed them but does not listen, and decides the repair. Pure. */
import { Backoff } from '../../lib/clock/backoff.ts';
import { PROXY_PORTS } from '../../lib/redirect/rules.ts';
import { RESTART_SERVING } from './limits.ts';

/** The ports of every proxy in a pod. */
export const LISTENER_PORTS = [PROXY_PORTS.outbound, PROXY_PORTS.inbound, PROXY_PORTS.hbone];

/** `add`: send the proxy another Add. `restart`: let it stop and start the pod, which cuts the pod's connections. */
export type ListenerRepair = 'none' | 'add' | 'restart';

/** Watches the listeners of one pod. */
export class ListenerWatch {
  readonly #spacing = new Backoff(RESTART_SERVING);
  #repairs = 0;
  #notBeforeMs = 0;

  /** True from a repair until the ports are there. */
  get repairing(): boolean {
    return this.#repairs > 0;
  }

  /** Returns the ports that should have a listener and have none. */
  static missing(listening: readonly number[]): readonly number[] {
    return LISTENER_PORTS.filter((port) => !listening.includes(port));
  }

  /**
   * Decides what to do about the missing ports now. A proxy that believes it serves the pod only confirms a second Add, so the
   * next repairs are restarts, with growing pauses while they do not help.
   */
  decide(missing: readonly number[], nowMs: number): ListenerRepair {
    if (missing.length === 0) {
      this.#repairs = 0;
      this.#spacing.reset();
      return 'none';
    }
    if (this.#repairs > 0 && nowMs < this.#notBeforeMs) return 'none';
    this.#repairs += 1;
    if (this.#repairs === 1) return 'add';
    this.#notBeforeMs = nowMs + this.#spacing.next();
    return 'restart';
  }
}

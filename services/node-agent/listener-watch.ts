/** Finds pods whose proxy confirmed them but does not listen, and says how to put that right. Pure but for time. */
import { Backoff } from '../../lib/clock/backoff.ts';
import { PROXY_PORTS } from '../../lib/redirect/rules.ts';
import { RESTART_SERVING } from './limits.ts';

const LISTENER_PORTS = [PROXY_PORTS.outbound, PROXY_PORTS.inbound, PROXY_PORTS.hbone];

/** `add`: tell the proxy of the pod again. `restart`: have it begin anew, which cuts the pod's connections. */
export type ListenerRepair = 'none' | 'add' | 'restart';

/** Of one pod. */
export class ListenerWatch {
  readonly #spacing = new Backoff(RESTART_SERVING);
  #repairs = 0;
  #notBeforeMs = 0;

  /** Ports that ought to be listened on and are not. */
  static missing(listening: readonly number[]): readonly number[] {
    return LISTENER_PORTS.filter((port) => !listening.includes(port));
  }

  /**
   * What to do about the missing ports at this moment. A proxy that thinks it serves the pod only confirms a
   * second Add, so that the next repairs are restarts, ever rarer as long as they do not help.
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

import type { Clock, Timer } from '../../lib/clock/clock.ts';
import type { MeshState } from './mesh-state.ts';

/** Dependencies of a {@link HoldWatch}. */
export interface HoldWatchDeps {
  readonly clock: Clock;
  readonly state: MeshState;
  /** Tells whether a stream stands on which the control plane could take the removals back. */
  readonly live: () => boolean;
}

/**
 * Applies held removals once they are due and the control plane stands by them. Without a stream they wait for the next one,
 * whose first answer repeats them or does not.
 */
export class HoldWatch {
  readonly #deps: HoldWatchDeps;
  #timer: Timer | null = null;

  constructor(deps: HoldWatchDeps) {
    this.#deps = deps;
  }

  /** Looks whether something is due; call it when the state changed or a stream became live. */
  look(): void {
    const { clock, live, state } = this.#deps;
    // Removals that are held later are due later.
    if (this.#timer !== null || !live()) return;
    state.applyHeld();
    const { dueAtMs } = state.held;
    if (dueAtMs === null) return;
    this.#timer = clock.after(dueAtMs - clock.now(), () => {
      this.#timer = null;
      this.look();
    });
  }

  /** Ends the wait. */
  close(): void {
    this.#timer?.cancel();
  }
}

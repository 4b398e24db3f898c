import type { Readiness } from '../../lib/actor/actor.ts';

/** A named reason not to be ready that may come and go. It blocks from the beginning. */
export class ReadinessBlocker {
  readonly #readiness: Readiness;
  readonly #name: string;
  #release: (() => void) | null;

  constructor(readiness: Readiness, name: string) {
    this.#readiness = readiness;
    this.#name = name;
    this.#release = readiness.block(name);
  }

  /** Says whether it blocks from now on. */
  set(blocking: boolean): void {
    if (blocking === (this.#release !== null)) return;
    if (blocking) {
      this.#release = this.#readiness.block(this.#name);
      return;
    }
    this.#release?.();
    this.#release = null;
  }
}

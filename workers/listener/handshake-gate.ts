import { MAX_PENDING_HANDSHAKES, MAX_PENDING_HANDSHAKES_PER_SOURCE } from './limits.ts';

/** Limits the handshakes that are in progress at one pod: all together, and those of each client address. */
export class HandshakeGate {
  readonly #bySource = new Map<string, number>();
  #pending = 0;

  /** False when there are too many; true obliges to {@link leave} once the handshake is over. */
  enter(source: string): boolean {
    const own = this.#bySource.get(source) ?? 0;
    if (this.#pending >= MAX_PENDING_HANDSHAKES) return false;
    if (own >= MAX_PENDING_HANDSHAKES_PER_SOURCE) return false;
    this.#pending += 1;
    this.#bySource.set(source, own + 1);
    return true;
  }

  leave(source: string): void {
    const left = (this.#bySource.get(source) ?? 0) - 1;
    this.#pending -= 1;
    if (left > 0) this.#bySource.set(source, left);
    else this.#bySource.delete(source);
  }
}

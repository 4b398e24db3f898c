import { MAX_PENDING_HANDSHAKES, MAX_PENDING_HANDSHAKES_PER_SOURCE } from '../limits.ts';
import type { NodeBudget } from '../../../lib/net/node-budget.ts';
import type { EarlyDenialReason } from '../telemetry/thread-metrics.ts';

/** Limits the handshakes that are in progress at one pod: those of each client address, the pod's, the process's. */
export class HandshakeGate {
  readonly #node: NodeBudget;
  readonly #bySource = new Map<string, number>();
  #pending = 0;

  constructor(node: NodeBudget) {
    this.#node = node;
  }

  /**
   * Null obliges to {@link leave} once the handshake is over, else why there are too many for one of `threads` that serve
   * the pod.
   */
  enter(source: string, threads = 1): EarlyDenialReason | null {
    const own = this.#bySource.get(source) ?? 0;
    if (own >= MAX_PENDING_HANDSHAKES_PER_SOURCE / threads) return 'peer-handshake-limit';
    if (this.#pending >= MAX_PENDING_HANDSHAKES / threads) return 'handshake-limit';
    if (!this.#node.take('handshakes')) return 'node-handshake-limit';
    this.#pending += 1;
    this.#bySource.set(source, own + 1);
    return null;
  }

  leave(source: string): void {
    const left = (this.#bySource.get(source) ?? 0) - 1;
    this.#pending -= 1;
    this.#node.give('handshakes');
    if (left > 0) this.#bySource.set(source, left);
    else this.#bySource.delete(source);
  }
}

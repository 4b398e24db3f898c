import type { NodeBudget } from '../../../lib/net/node-budget.ts';
import {
  DESCRIPTORS_PER_POD_CONNECTION,
  MAX_CONNECTIONS_PER_POD,
  RESERVED_DESCRIPTORS,
} from '../limits.ts';
import type { ListenerSettings } from '../protocol/settings.ts';
import type { EarlyDenialReason } from '../telemetry/thread-metrics.ts';

/** How many connections a pod may have on this thread. */
export interface AdmissionLimits {
  readonly perPod: number;
  /** Connections that one client address may have, so that no client locks the others out. */
  readonly perPeer: number;
}

/**
 * Counts the connections of one pod: accepted sockets, and streams of inbound tunnels. Refuses what is beyond the pod's
 * share, one client's share of it, or what the whole process may have.
 */
export class Admission {
  readonly #limits: AdmissionLimits;
  readonly #node: NodeBudget;
  readonly #byPeer = new Map<string, number>();
  #count = 0;
  #threads = 1;

  constructor(limits: AdmissionLimits, node: NodeBudget) {
    this.#limits = limits;
    this.#node = node;
  }

  /** Connections that are counted now. */
  get count(): number {
    return this.#count;
  }

  /** The pod is served by so many threads: each may have its part of the limits. */
  divide(threads: number): void {
    this.#threads = threads;
  }

  /**
   * Counts one, of a client address or, with null, of the pod itself. Null obliges to {@link leave} when it is over, else
   * why it is refused.
   */
  enter(peer: string | null): EarlyDenialReason | null {
    if (this.#count >= this.#limits.perPod / this.#threads) return 'connection-limit';
    const own = peer === null ? 0 : (this.#byPeer.get(peer) ?? 0);
    if (own >= this.#limits.perPeer / this.#threads) return 'peer-connection-limit';
    if (!this.#node.take('connections')) return 'node-connection-limit';
    this.#count += 1;
    if (peer !== null) this.#byPeer.set(peer, own + 1);
    return null;
  }

  /** The connection is over. */
  leave(peer: string | null): void {
    this.#node.give('connections');
    this.#count -= 1;
    if (peer === null) return;
    const left = (this.#byPeer.get(peer) ?? 0) - 1;
    if (left > 0) this.#byPeer.set(peer, left);
    else this.#byPeer.delete(peer);
  }
}

/** How many connections one pod may have in a process of so many descriptors. */
export function connectionsPerPod(descriptors: number): number {
  return Math.min(
    MAX_CONNECTIONS_PER_POD,
    Math.floor(descriptors / DESCRIPTORS_PER_POD_CONNECTION),
  );
}

/** How many connections a process of so many descriptors may have: each takes two, but a tunnel of TLS 1.2 takes three. */
export function nodeConnections(descriptors: number, tls12: boolean): number {
  return Math.max(1, Math.floor((descriptors - RESERVED_DESCRIPTORS) / (tls12 ? 3 : 2)));
}

/** A pod's share, and one client's share of that: half of it. */
export function admissionLimits(
  { limits }: Pick<ListenerSettings, 'limits'>,
  descriptors: number,
): AdmissionLimits {
  const perPod = limits.connectionsPerPod ?? connectionsPerPod(descriptors);
  return { perPod, perPeer: Math.ceil(perPod / 2) };
}

import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Tunnel } from '../../../lib/hbone/engine.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { lookupId } from '../../../lib/state/view.ts';
import type { LookupKey } from '../../../lib/state/view.ts';
import { MAX_PEER_CHECKS, PEER_PROBE_TIMEOUT_MS } from '../limits.ts';
import type { StateClient } from '../state-client.ts';
import type { ThreadMetrics } from '../telemetry/thread-metrics.ts';

/** Dependencies of {@link PeerWatch}. */
export interface PeerWatchDeps {
  readonly state: Pick<StateClient, 'ask' | 'onInvalidate'>;
  /** The network whose addresses the peers have. */
  readonly network: string;
  readonly log: Logger;
  readonly metrics: ThreadMetrics;
}

/**
 * The tunnels of a thread by their peer's address. When the mesh removes the workload of an address, its tunnels are
 * probed at once (docs/decisions/removed-peers.md): a peer that answers keeps them, one that does not loses them
 * long before its periodic PING would tell.
 */
export class PeerWatch {
  readonly #deps: PeerWatchDeps;
  readonly #tunnels = new Map<string, Set<Tunnel>>();
  /** Addresses to ask the mesh about; never more than there are peers. */
  readonly #due = new Set<string>();
  #checking = false;

  constructor(deps: PeerWatchDeps) {
    this.#deps = deps;
    deps.state.onInvalidate((ids) => this.#changed(ids));
  }

  /** Follows a tunnel with the address until it closes. */
  add(ip: string, tunnel: Tunnel): void {
    const known = this.#tunnels.get(ip) ?? new Set();
    this.#tunnels.set(ip, known.add(tunnel));
    void tunnel.closed.then(() => {
      known.delete(tunnel);
      if (known.size === 0 && this.#tunnels.get(ip) === known) this.#tunnels.delete(ip);
    });
  }

  /** Null = everything may have changed. */
  #changed(ids: readonly string[] | null): void {
    const changed = ids === null ? null : new Set(ids);
    for (const ip of this.#tunnels.keys()) {
      if (changed === null || changed.has(lookupId(this.#key(ip)))) this.#due.add(ip);
    }
    if (this.#due.size === 0 || this.#checking) return;
    this.#checking = true;
    this.#check().then(
      () => {
        this.#checking = false;
      },
      (error: unknown) => {
        this.#checking = false;
        this.#deps.log.error({ error: errorText(error) }, 'peers.check-failed');
      },
    );
  }

  async #check(): Promise<void> {
    while (this.#due.size > 0) {
      const some = [...this.#due].slice(0, MAX_PEER_CHECKS);
      for (const ip of some) this.#due.delete(ip);
      await Promise.all(some.map((ip) => this.#checkOne(ip)));
    }
  }

  async #checkOne(ip: string): Promise<void> {
    const answer = await this.#deps.state.ask(this.#key(ip));
    // Not told now is no removal; the periodic PINGs go on either way.
    if (answer === undefined || answer.workloads.length > 0) return;
    for (const tunnel of this.#tunnels.get(ip) ?? []) void this.#probe(ip, tunnel);
  }

  async #probe(ip: string, tunnel: Tunnel): Promise<void> {
    const { log, metrics } = this.#deps;
    const alive = await tunnel.probe(PEER_PROBE_TIMEOUT_MS);
    metrics.peerProbes[alive ? 'alive' : 'dead'] += 1;
    log.info({ peer: ip, identity: tunnel.peer.identity, alive }, 'peer.removed');
  }

  #key(ip: string): LookupKey {
    return { kind: 'address', network: this.#deps.network, ip };
  }
}

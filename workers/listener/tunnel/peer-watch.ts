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

/** The part of a tunnel that is used. */
type WatchedTunnel = Pick<Tunnel, 'closed' | 'probe'> & {
  readonly peer: Pick<Tunnel['peer'], 'identity'>;
};

/** A peer with tunnels. */
interface Peer {
  readonly ip: string;
  readonly tunnels: Set<WatchedTunnel>;
}

/**
 * The tunnels of a thread by their peer's address. When the mesh removes the workload of an address, its tunnels are
 * probed at once (docs/decisions/removed-peers.md): a peer that answers keeps them, one that does not loses them
 * long before its periodic PING would tell.
 */
export class PeerWatch {
  readonly #deps: PeerWatchDeps;
  /** The peers by lookup id: the mesh tells by these ids what changed. */
  readonly #peers = new Map<string, Peer>();
  /** Lookup ids to ask the mesh about; never more than there are peers. */
  readonly #due = new Set<string>();
  #checking = false;

  constructor(deps: PeerWatchDeps) {
    this.#deps = deps;
    deps.state.onInvalidate((ids) => this.#changed(ids));
  }

  /** Follows a tunnel with the address until it closes. */
  add(ip: string, tunnel: WatchedTunnel): void {
    const id = lookupId(this.#key(ip));
    const peer = this.#peers.get(id) ?? { ip, tunnels: new Set() };
    this.#peers.set(id, peer);
    peer.tunnels.add(tunnel);
    void tunnel.closed.then(() => {
      peer.tunnels.delete(tunnel);
      if (peer.tunnels.size === 0 && this.#peers.get(id) === peer) this.#peers.delete(id);
    });
  }

  /** Null = everything may have changed. */
  #changed(ids: readonly string[] | null): void {
    for (const id of ids ?? this.#peers.keys()) {
      if (this.#peers.has(id)) this.#due.add(id);
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
      for (const id of some) this.#due.delete(id);
      await Promise.all(some.map((id) => this.#checkOne(id)));
    }
  }

  async #checkOne(id: string): Promise<void> {
    const peer = this.#peers.get(id);
    if (peer === undefined) return;
    const { ip, tunnels } = peer;
    const answer = await this.#deps.state.ask(this.#key(ip));
    // Not told now is no removal; the periodic PINGs go on either way.
    if (answer === undefined || answer.workloads.length > 0) return;
    for (const tunnel of tunnels) void this.#probe(ip, tunnel);
  }

  async #probe(ip: string, tunnel: WatchedTunnel): Promise<void> {
    const { log, metrics } = this.#deps;
    const alive = await tunnel.probe(PEER_PROBE_TIMEOUT_MS);
    metrics.peerProbes[alive ? 'alive' : 'dead'] += 1;
    log.info({ peer: ip, identity: tunnel.peer.identity, alive }, 'peer.removed');
  }

  #key(ip: string): LookupKey {
    return { kind: 'address', network: this.#deps.network, ip };
  }
}

import { setImmediate as turn } from 'node:timers/promises';
import type { X509Certificate } from 'node:crypto';
import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { RevocationLists } from '../identity/crl.ts';
import { presentedIssuers, verifyChain } from '../identity/peer-verify.ts';
import { parseCertificates } from '../tls/pem.ts';
import { RevocationBook } from '../identity/revocation-book.ts';
import type { IssuedPath, PathStep } from '../identity/revocation-book.ts';
import type { Logger } from '../log/logger.ts';
import type { TunnelCredentials } from './credentials.ts';
import type { HboneEngine, Tunnel, TunnelOptions } from './engine.ts';
import { REVERIFIED_PER_TURN } from './limits.ts';
import { TrackedPeers, issuerText, serialText } from './tracked-peers.ts';
import type { TrackedTunnel } from './tracked-peers.ts';

/** The local end of a tunnel: the client's or the server's. */
export type TrustReporter = 'source' | 'destination';

/** Counts since the start, read at a scrape. */
export interface TrustCounters {
  /** Handshakes refused and tunnels ended because a certificate of the peer's path is revoked. */
  readonly rejections: Record<TrustReporter, number>;
  /** Tunnels without a known path, which later lists cannot be applied to. */
  readonly untracked: Record<TrustReporter, number>;
  /** Tunnels that drain because their peer no longer leads to a trusted root. */
  readonly distrusted: Record<TrustReporter, number>;
}

/** Settings of {@link PeerTrust}. */
export interface PeerTrustOptions {
  /** Whether revocation lists are configured. Without them no path is searched. */
  readonly revocation: boolean;
  /** Time that streams may continue on a tunnel whose peer is no longer trusted, milliseconds. */
  readonly distrustGraceMs: number;
}

/** The clock and the log of {@link PeerTrust}. */
export interface PeerTrustDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'warn'>;
}

/**
 * Judges whether the peers of a thread's tunnels are trusted: at the handshake, and on each change of revocation lists or trust roots
 * while a tunnel lives (docs/spec/hbone.md §4). A guarded engine registers its tunnels by itself.
 */
export class PeerTrust {
  readonly counters: TrustCounters = {
    rejections: { source: 0, destination: 0 },
    untracked: { source: 0, destination: 0 },
    distrusted: { source: 0, destination: 0 },
  };
  readonly #options: PeerTrustOptions;
  readonly #deps: PeerTrustDeps;
  readonly #book = new RevocationBook();
  readonly #peers = new TrackedPeers();
  /** The credentials with the latest roots, by local identity. */
  readonly #latest = new Map<string, TunnelCredentials>();
  /** The pass over all tunnels that is under way; null while all are verified against the latest roots. */
  #pass: Promise<void> | null = null;
  #stale = false;
  /** Credentials that lead to a root, each with the roots it was last verified against. */
  readonly #leading = new WeakMap<TunnelCredentials, string>();

  constructor(options: PeerTrustOptions, deps: PeerTrustDeps) {
    this.#options = options;
    this.#deps = deps;
  }

  /** Number of tunnels watched now. */
  get tracked(): number {
    return this.#peers.size;
  }

  /** Wraps an engine: every peer is checked against the revocation lists, and every tunnel is watched. */
  guard(engine: HboneEngine): HboneEngine {
    return {
      name: engine.name,
      serve: async (socket, options) => {
        const watch = this.#watcher(options, 'destination');
        return watch(await engine.serve(socket, { ...options, verifyPeer: watch.verify }));
      },
      connect: async (socket, options) => {
        const watch = this.#watcher(options, 'source');
        return watch(await engine.connect(socket, { ...options, verifyPeer: watch.verify }));
      },
    };
  }

  /** Throws TLS_PEER_REVOKED when the local certificate, or one above it, is revoked. Peers would refuse it too. */
  assertUnrevoked(credentials: TunnelCredentials, reporter: TrustReporter): void {
    if (this.#book.empty) return;
    const [leaf, ...others] = parseCertificates(credentials.chainPem, 'the certificate');
    if (leaf !== undefined) this.#judge(this.#path(leaf, others, credentials), reporter);
  }

  /** Throws TLS_PEER_DISTRUSTED when the local certificate leads to none of the roots of `by`. Peers would refuse it too. */
  assertTrusted(credentials: TunnelCredentials, by: TunnelCredentials = credentials): void {
    if (this.#leading.get(credentials) === by.rootsPem) return;
    const [leaf, ...others] = parseCertificates(credentials.chainPem, 'the certificate');
    // The path is judged within the certificate's own time; assertValid judges expiry.
    const atMs = Math.min(this.#deps.clock.now(), credentials.notAfterMs - 1);
    try {
      if (leaf !== undefined) verifyChain(leaf, others, by.roots, atMs);
    } catch (error) {
      throw distrusted(errorText(error));
    }
    this.#leading.set(credentials, by.rootsPem);
  }

  /** Takes new lists. They apply to all further checks at once, and to live tunnels in the background. */
  async setRevocations(lists: RevocationLists): Promise<void> {
    this.#book.replace(lists);
    const { generation } = this.#book;
    let looked = 0;
    for (const issuer of this.#peers.issuers()) {
      if (this.#book.listsOf(issuer).length === 0) continue;
      for (const { serial, tunnels } of this.#peers.issuedBy(issuer)) {
        looked += 1;
        if (looked % REVERIFIED_PER_TURN === 0) await turn();
        // A call with newer lists already checks everything.
        if (this.#book.generation !== generation) return;
        if (!this.#book.isListed(serial, issuer)) continue;
        for (const tracked of tunnels) this.#revoke(tracked, { serial, issuer });
      }
    }
  }

  /**
   * Verifies the identity's tunnels against other roots, as of the time they were made, and resolves when that is done. One pass serves
   * all identities, because roots change for all of them together.
   */
  rootsChanged(credentials: TunnelCredentials): Promise<void> {
    this.#latest.set(credentials.identity, credentials);
    this.#stale = true;
    this.#pass ??= this.#reverifyAll();
    return this.#pass;
  }

  async #reverifyAll(): Promise<void> {
    while (this.#stale) {
      await turn();
      this.#stale = false;
      let looked = 0;
      for (const tracked of this.#peers) {
        const latest = this.#latest.get(tracked.identity);
        if (latest === undefined || latest.rootsPem === tracked.rootsPem) continue;
        this.#reverify(tracked, latest);
        looked += 1;
        if (looked % REVERIFIED_PER_TURN === 0) await turn();
      }
    }
    this.#pass = null;
  }

  /** Forgets the credentials of an identity that no local pod has any more. */
  drop(identity: string): void {
    this.#latest.delete(identity);
  }

  #watcher(
    options: TunnelOptions,
    reporter: TrustReporter,
  ): (<T extends Tunnel>(tunnel: T) => T) & { verify: TunnelOptions['verifyPeer'] } {
    const { credentials } = options;
    let path: IssuedPath | null = null;
    const verify = (certificate: X509Certificate): string => {
      if (this.#options.revocation) {
        path = this.#path(certificate, presentedIssuers(certificate), credentials);
        this.#judge(path, reporter);
      }
      return options.verifyPeer(certificate);
    };
    const watch = <T extends Tunnel>(tunnel: T): T => {
      this.#track(tunnel, { path, credentials, reporter });
      return tunnel;
    };
    return Object.assign(watch, { verify });
  }

  #track(
    tunnel: Tunnel,
    known: {
      readonly path: IssuedPath | null;
      readonly credentials: TunnelCredentials;
      readonly reporter: TrustReporter;
    },
  ): void {
    const { path, credentials, reporter } = known;
    const { identity, rootsPem } = credentials;
    const establishedMs = this.#deps.clock.now();
    const tracked: TrackedTunnel = {
      tunnel,
      reporter,
      identity,
      establishedMs,
      rootsPem,
      path,
      ending: null,
    };
    this.#peers.add(tracked);
    // The roots and the lists may have changed during the handshake.
    const latest = this.#latest.get(identity);
    if (latest !== undefined && latest.rootsPem !== rootsPem) this.#reverify(tracked, latest);
    void tunnel.closed.then(() => {
      this.#peers.delete(tracked);
      tracked.ending?.cancel();
    });
    if (!this.#options.revocation) return;
    if (path === null) {
      this.counters.untracked[reporter] += 1;
      this.#deps.log.warn({ peer: tunnel.peer.identity }, 'tunnel.untracked');
      return;
    }
    const step = this.#book.revoked(path);
    if (step !== null) this.#revoke(tracked, step);
  }

  #reverify(tracked: TrackedTunnel, { roots, rootsPem }: TunnelCredentials): void {
    tracked.rootsPem = rootsPem;
    const { certificate, notAfterMs } = tracked.tunnel.peer;
    // A renewed root may be younger than the tunnel; the peer's own expiry drains the tunnel elsewhere.
    const atMs = Math.min(this.#deps.clock.now(), notAfterMs - 1);
    try {
      const issuers = presentedIssuers(certificate);
      const path = verifyChain(certificate, issuers, roots, atMs);
      if (this.#options.revocation) this.#peers.move(tracked, this.#book.steps(path));
      // Its streams may go on, but it takes no new ones: the drain is announced.
      tracked.ending?.cancel();
      tracked.ending = null;
    } catch (error) {
      this.#distrust(tracked, errorText(error));
    }
  }

  /** The path that the TLS stack has verified; null when it is not found and no list revokes anything. */
  #path(
    leaf: X509Certificate,
    others: readonly X509Certificate[],
    { roots }: TunnelCredentials,
  ): IssuedPath | null {
    try {
      return this.#book.steps(verifyChain(leaf, others, roots, this.#deps.clock.now()));
    } catch (error) {
      if (this.#book.empty) return null;
      // Fails closed: a peer that cannot be checked might be revoked.
      throw new MeshError(
        'TLS_HANDSHAKE',
        `the peer cannot be checked against the revocation lists: ${errorText(error)}`,
        { cause: error },
      );
    }
  }

  #judge(path: IssuedPath | null, reporter: TrustReporter): void {
    const step = path === null ? null : this.#book.revoked(path);
    if (step === null) return;
    this.counters.rejections[reporter] += 1;
    throw revoked(step);
  }

  #revoke(tracked: TrackedTunnel, step: PathStep): void {
    const { tunnel, reporter } = tracked;
    this.#peers.delete(tracked);
    this.counters.rejections[reporter] += 1;
    const error = revoked(step);
    const { streams, peer } = tunnel;
    this.#deps.log.warn(
      { peer: peer.identity, reporter, streams, error: error.message },
      'tunnel.revoked',
    );
    tunnel.destroy(error);
  }

  /** Drains a tunnel whose peer is no longer trusted, and ends it after the grace time. */
  #distrust(tracked: TrackedTunnel, why: string): void {
    // Other roots that do not help either change neither the count nor the end.
    if (tracked.ending !== null) return;
    const { tunnel, reporter } = tracked;
    const { distrustGraceMs } = this.#options;
    this.counters.distrusted[reporter] += 1;
    this.#deps.log.warn(
      { peer: tunnel.peer.identity, reporter, streams: tunnel.streams, why },
      'tunnel.distrusted',
    );
    const error = distrusted(why);
    tunnel.drain();
    tracked.ending = this.#deps.clock.after(distrustGraceMs, () => tunnel.destroy(error));
  }
}

function distrusted(why: string): MeshError {
  const text = `the peer leads to no trusted root any more: ${why}`;
  return new MeshError('TLS_PEER_DISTRUSTED', text);
}

function revoked({ serial, issuer }: PathStep): MeshError {
  const name = issuerText(issuer.certificate);
  return new MeshError(
    'TLS_PEER_REVOKED',
    `a certificate of the peer is revoked: serial ${serialText(serial)} of the authority ${name}`,
    { detail: { serial: serialText(serial), issuer: name } },
  );
}

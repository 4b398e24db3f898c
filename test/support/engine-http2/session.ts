import type { Http2Session } from 'node:http2';
import type { Duplex } from 'node:stream';
import { constants } from 'node:http2';
import { CLOSE_LINGER_MS } from '../../../lib/hbone/limits.ts';
import type { MeshError } from '../../../lib/errors/mesh-error.ts';
import { noCounts, silence } from '../../../lib/hbone/engine.ts';
import { SessionTimers } from '../../../lib/hbone/session-timers.ts';
import type { Tunnel, TunnelEnd, TunnelOptions, TunnelPeer } from '../../../lib/hbone/engine.ts';

/** The life of one node:http2 session, for client and server tunnels. */
export abstract class SessionTunnel implements Tunnel {
  readonly peer: TunnelPeer;
  readonly counters = noCounts();
  readonly closed: Promise<TunnelEnd>;
  /** The error that ended the session, for the message of whatever was still waiting on it. */
  failure: Error | null = null;
  /** The reason it was destroyed for; null when it has none or was not destroyed. */
  destroyedFor: MeshError | null = null;
  protected readonly session: Http2Session;
  protected readonly options: TunnelOptions;
  readonly #socket: Duplex;
  readonly #timers: SessionTimers;
  #streams = 0;
  #end: TunnelEnd | null = null;
  #draining = false;
  #probing: Promise<boolean> | null = null;

  constructor(
    session: Http2Session,
    { peer, socket }: { readonly peer: TunnelPeer; readonly socket: Duplex },
    options: TunnelOptions,
  ) {
    this.#socket = socket;
    this.session = session;
    this.peer = peer;
    this.options = options;
    this.#timers = new SessionTimers(options.clock);
    this.closed = new Promise((resolve) => {
      session.once('close', () => {
        this.#timers.cancelAll();
        this.changed();
        resolve(this.#end ?? (this.#draining ? 'drained' : 'peer-closed'));
      });
    });
    session.on('error', (error: Error) => {
      this.failure = error;
      this.#end ??= 'error';
    });
    session.on('goaway', () => this.changed());
    this.#boundHandshake();
    this.#keepAlive();
    // When a certificate of either end expires.
    this.#timers.at(Math.min(options.credentials.notAfterMs, peer.notAfterMs), () => this.drain());
  }

  get streams(): number {
    return this.#streams;
  }

  get usable(): boolean {
    return !this.#draining && !this.session.closed && !this.session.destroyed;
  }

  drain(): void {
    if (this.#draining || this.session.destroyed) return;
    this.#draining = true;
    this.session.close();
    this.changed();
  }

  destroy(reason?: MeshError): void {
    this.end('destroyed', constants.NGHTTP2_NO_ERROR, reason);
  }

  probe(timeoutMs: number): Promise<boolean> {
    this.#probing ??= this.#probe(timeoutMs).finally(() => {
      this.#probing = null;
    });
    return this.#probing;
  }

  /** A stream has begun; its end is {@link streamEnded}. */
  protected streamBegan(): void {
    this.#streams += 1;
    this.counters.opened += 1;
  }

  protected streamEnded(): void {
    this.#streams -= 1;
  }

  /** Its streams, how many its peer takes, or whether it takes any have changed. May be called for nothing. */
  protected abstract changed(): void;

  protected end(
    reason: TunnelEnd,
    code: number = constants.NGHTTP2_NO_ERROR,
    error?: MeshError,
  ): void {
    if (this.session.destroyed) return;
    this.#end ??= reason;
    this.destroyedFor ??= error ?? null;
    this.session.destroy(error, code);
    // A session waits for its last write, for ever where the peer does not read.
    const timer = this.options.clock.after(CLOSE_LINGER_MS, () => this.#socket.destroy());
    this.#socket.once('close', () => timer.cancel());
  }

  /** A peer that finished TLS must also speak HTTP/2 in time. */
  #boundHandshake(): void {
    const timer = this.#timers.after(this.options.settings.handshakeTimeoutMs, () =>
      this.end('preface-timeout'),
    );
    this.session.once('remoteSettings', () => timer.cancel());
  }

  #keepAlive(): void {
    const { pingIntervalMs, pingTimeoutMs } = this.options.settings;
    const schedule = (): void => {
      this.#timers.after(pingIntervalMs, () => {
        const timeout = this.#timers.afterInput(pingTimeoutMs, () => this.#silent(pingTimeoutMs));
        const sent =
          !this.session.destroyed &&
          this.session.ping((error) => {
            timeout.cancel();
            if (error !== null) return;
            this.counters.pingsAnswered += 1;
            schedule();
          });
        if (!sent) timeout.cancel();
      });
    };
    schedule();
  }

  #silent(timeoutMs: number): void {
    this.end('ping-timeout', constants.NGHTTP2_NO_ERROR, silence(timeoutMs));
  }

  async #probe(timeoutMs: number): Promise<boolean> {
    if (this.session.destroyed) return false;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const { socket } = this.session;
    const heard = socket.bytesRead;
    const timeout = this.#timers.afterInput(timeoutMs, () => {
      // The answer may wait behind all that was sent. Any received byte is a sign of life.
      if (socket.bytesRead > heard) resolve(true);
      else this.#silent(timeoutMs);
    });
    this.session.ping((error) => resolve(error === null));
    const alive = await Promise.race([promise, this.closed.then(() => false)]);
    timeout.cancel();
    return alive;
  }
}

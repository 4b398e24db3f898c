/**
 * The HBONE engine port: everything the data path needs from TLS and HTTP/2, and nothing of how an engine
 * does it. Every engine passes test/contract/hbone-engine.ts.
 */
import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { Abort, Copy, CopySide } from '../net/bidi-copy.ts';
import type { ByteAccount } from '../net/held-bytes.ts';
import type { RawSocket } from '../net/raw-socket.ts';
import type { TunnelCredentials } from './credentials.ts';
import type { PeerHeaders } from './peer-text.ts';

/** Makes tunnels on sockets that are connected already. An engine holds no state between them. */
export interface HboneEngine {
  readonly name: string;
  /**
   * Takes the server's part on an accepted socket, which the engine owns from now on. Resolves when the peer
   * is verified; rejects with TLS_HANDSHAKE, TLS_PEER_IDENTITY or IDENTITY_EXPIRED, the socket destroyed.
   */
  serve(socket: Socket, options: ServeOptions): Promise<ServerTunnel>;
  /** Takes the client's part on a connected socket; otherwise like {@link serve}. */
  connect(socket: Socket, options: TunnelOptions): Promise<ClientTunnel>;
}

/** Times in milliseconds, sizes in bytes (docs/spec/hbone.md §8). */
export interface TunnelSettings {
  readonly streamWindow: number;
  readonly connectionWindow: number;
  readonly frameSize: number;
  /** Streams a client opens on one tunnel at most; the peer's own limit may be lower. */
  readonly maxStreams: number;
  readonly pingIntervalMs: number;
  readonly pingTimeoutMs: number;
  /** For TLS and the HTTP/2 preface together. */
  readonly handshakeTimeoutMs: number;
}

/**
 * Judges a peer whose chain already ends in a trusted root: returns its identity, or throws
 * TLS_PEER_IDENTITY.
 */
export type VerifyPeer = (certificate: X509Certificate) => string;

/** Options of both sides. */
export interface TunnelOptions {
  readonly credentials: TunnelCredentials;
  readonly verifyPeer: VerifyPeer;
  readonly settings: TunnelSettings;
  readonly clock: Clock;
  /** The account of the bytes that the tunnel holds; left out for an engine whose library holds them. */
  readonly bytes?: ByteAccount;
  /** Records of a carried tunnel under one key; the carry's own number without. */
  readonly rekeyRecords?: number;
}

/** Further options of a server. */
export interface ServeOptions extends TunnelOptions {
  /**
   * Called for each request. The request counts as undecided until the promise settles; a rejection fails
   * that stream alone with 503 and is handed to `onRequestError`.
   */
  readonly onRequest: (request: IncomingRequest, tunnel: ServerTunnel) => Promise<void>;
  readonly onRequestError: (error: unknown) => void;
}

/** Has a request served as {@link ServeOptions.onRequest} says; `done` is called when that is over. */
export function serveRequest(
  { onRequest, onRequestError }: ServeOptions,
  request: IncomingRequest,
  tunnel: ServerTunnel,
  done: () => void,
): void {
  onRequest(request, tunnel)
    .catch((error: unknown) => {
      request.refuse(503);
      onRequestError(error);
    })
    .finally(done);
}

/** The other end of a tunnel. */
export interface TunnelPeer {
  readonly identity: string;
  readonly notAfterMs: number;
  /** Its leaf; `issuerCertificate` leads through what it presented besides, in the order it came. */
  readonly certificate: X509Certificate;
}

/** Why a tunnel ended. */
export type TunnelEnd =
  | 'peer-closed'
  | 'drained'
  | 'destroyed'
  | 'ping-timeout'
  | 'preface-timeout'
  | 'too-many-resets'
  | 'error';

/** Plain counts, never reset. */
export interface TunnelCounters {
  opened: number;
  refused: number;
  resetSent: number;
  resetReceived: number;
  pingsAnswered: number;
}

/** Returns the counters that a tunnel begins with. */
export function noCounts(): TunnelCounters {
  return { opened: 0, refused: 0, resetSent: 0, resetReceived: 0, pingsAnswered: 0 };
}

/** The common part of both kinds of tunnel. */
export interface Tunnel {
  readonly peer: TunnelPeer;
  /** Streams that are open now. */
  readonly streams: number;
  readonly counters: Readonly<TunnelCounters>;
  /** False once it drains or ends: no new stream may be opened or is accepted. */
  readonly usable: boolean;
  /** Resolves once with the reason when the tunnel is gone; never rejects. */
  readonly closed: Promise<TunnelEnd>;
  /** Takes no new streams (GOAWAY), ends when the open ones have. Happens by itself when a certificate of either end expires. */
  drain(): void;
  /** Ends now (GOAWAY NO_ERROR); open streams are reset, and end with `reason` on this side where there is one. */
  destroy(reason?: MeshError): void;
  /**
   * Asks the peer for a sign of life now (PING; whatever it sends is one). Resolves to false when none comes
   * within `timeoutMs`, which ends the tunnel as `ping-timeout` and its streams with UPSTREAM_TIMEOUT, as a periodic
   * PING that stays unanswered does, or when the tunnel ends first. Never rejects.
   */
  probe(timeoutMs: number): Promise<boolean>;
}

/** The server's end of a tunnel. */
export type ServerTunnel = Tunnel;

/** The client's end of a tunnel. */
export interface ClientTunnel extends Tunnel {
  /** Streams that may still be opened at this moment. */
  readonly capacity: number;
  /**
   * Opens a stream; resolves when the peer answered 200. The stream is counted at once. Rejects with
   * TUNNEL_REFUSED (detail `status`), TUNNEL_RESET, TUNNEL_CLOSED (the request was certainly not
   * processed) or UPSTREAM_TIMEOUT.
   */
  open(request: OpenRequest): Promise<TunnelStream>;
  /** Called each time a stream has ended, the peer has changed how many it takes, or the tunnel stops being usable. */
  onChange(listener: () => void): void;
}

/** A CONNECT to send; header values ready to go. */
export interface OpenRequest {
  readonly authority: string;
  readonly headers: Readonly<Record<string, string>>;
  /**
   * The connection that {@link TunnelStream.carry} will get. An engine may join it with the stream as soon as the peer has answered 200; it gives it back
   * when the request fails.
   */
  readonly client?: RawSocket | null;
  /** Told by a pool which tunnel it sends the request through, before it does. */
  readonly onTunnel?: (tunnel: ClientTunnel) => void;
}

/** A stream's bytes as a local socket, which the caller owns. */
export interface LocalStream {
  /** Half-open, and paused. How it ends does not tell how the stream has ended. */
  readonly socket: Socket;
  /** Calls `listener` when the stream is over, with its error if that is a failure; at once when it is over already. */
  onOver(listener: (error: Error | null) => void): void;
}

/** Bytes over a tunnel: `end()` sends END_STREAM, its arrival ends the readable side. */
export interface TunnelStream {
  readonly duplex: Duplex;
  /**
   * Moves the stream's bytes to and from a half-open TCP socket without `duplex`, as lib/net/bidi-copy.ts promises; both belong
   * to the copy from then on. Null when `duplex` is in use already. Engines that know no shorter way leave it out.
   */
  carry?(socket: RawSocket, socketIs: CopySide): Copy | null;
  /** Gives the stream's bytes to a local socket, for a tunnel inside of it (docs/spec/hbone.md §10). Throws NATIVE_SYSCALL, and TUNNEL_RESET when it is over. Instead of `duplex` and `carry`. */
  toSocket(): LocalStream;
  /**
   * Ends both directions at once, dropping what waits: by RST_STREAM CANCEL, or NO_ERROR where a server has said all it had, when
   * what the peer says is `unread`; by CONNECT_ERROR for a `reset` of the application (RFC 9113 §8.5), by INTERNAL_ERROR for a
   * `cut`. `unread` by default. Harmless on an ended stream.
   */
  reset(why?: Abort): void;
  /** Response headers of an opened stream, cut as peer-text.ts says; none of an accepted one. */
  readonly headers: PeerHeaders;
}

/** A request that is not yet answered. */
export interface IncomingRequest {
  readonly method: string;
  readonly authority: string;
  /** The headers that are read, cut as peer-text.ts says; none once the request is accepted. */
  readonly headers: PeerHeaders;
  /** True when the peer has given up. */
  readonly aborted: boolean;
  /** Calls `listener` once when the request ends before the answer: null when the peer gave up, else what its tunnel was destroyed for. */
  onAborted(listener: (reason: MeshError | null) => void): void;
  /** Answers 200; null when the peer gave up first. */
  accept(headers: Readonly<Record<string, string>>): TunnelStream | null;
  /** Answers with the status and nothing else; no effect when the peer gave up. */
  refuse(status: RefuseStatus): void;
  /** Resets the unanswered stream. `refused` tells the peer that nothing was processed. */
  reset(code: 'cancel' | 'refused'): void;
}

/** Statuses a stream is refused with (docs/spec/dataplane.md §7.2). */
export type RefuseStatus = 400 | 401 | 503;

/** Status of a TUNNEL_REFUSED error, null for any other. */
export function refusedStatus(error: MeshError): number | null {
  const status = error.detail['status'];
  return error.code === 'TUNNEL_REFUSED' && typeof status === 'number' ? status : null;
}

/**
 * Makes the failure of a request whose tunnel ended before the answer. The peer did not say whether it looked at it: the
 * application may have been reached, so it is not asked for again.
 */
export function endedUnanswered(cause: Error | undefined): MeshError {
  const why = cause === undefined ? '' : `: ${errorText(cause)}`;
  return new MeshError('TUNNEL_RESET', `the tunnel ended before the peer answered${why}`, {
    cause,
  });
}

/** Makes the end of a connection that the other end of the mesh has cut; `how` names the signal. */
export function cutByPeer(how: string): MeshError {
  return new MeshError('TUNNEL_RESET', `the peer cut the connection (${how})`);
}

/** Makes the end of a connection whose tunnel ended under it: the tunnel's own failure, where Weft found that itself. */
export function endedUnderneath(cause: Error | null): MeshError {
  if (cause instanceof MeshError) return cause;
  const why = cause === null ? '' : `: ${errorText(cause)}`;
  return new MeshError('TUNNEL_RESET', `the tunnel ended before the connection${why}`, {
    cause: cause ?? undefined,
  });
}

/** Makes the end of the streams of a tunnel whose peer fell silent. */
export function silence(timeoutMs: number): MeshError {
  const why = `the peer gave no sign of life (PING) within ${timeoutMs} ms`;
  return new MeshError('UPSTREAM_TIMEOUT', why);
}

/** The border between the decisions about a connection and the bytes on it (RFC 9113). */
import type { ByteAccount } from '../../net/held-bytes.ts';
import type { RawSocket } from '../../net/raw-socket.ts';
import type { TunnelStream } from '../engine.ts';
import type { PeerHeaders } from '../peer-text.ts';
import type { StreamEnd } from './ended-streams.ts';
import type { ConnectionFault, FrameHeader } from './frames.ts';
import type { FieldList } from './hpack-decoder.ts';
import type { PeerSettings } from './peer-settings.ts';
import type { ReceiveWindows } from './receive-windows.ts';
import type { StreamOver } from './resets.ts';

/** A stream without its bytes. */
export interface SessionStream {
  readonly id: number;
  /** Whether sending and receiving have stopped. */
  readonly over: boolean;
  /** The code of the peer's RST_STREAM, null when none has come. */
  resetCode: number | null;
  /** Whether the peer's END_STREAM is known to have come. */
  readonly remoteEnded: boolean;
  /** Takes header lists while an answer is awaited. Without it they are trailers. */
  readonly onHead: ((list: FieldList) => void) | null;
  /**
   * Sets `onHead`, and `onOver`, which is called when the stream is over, before the reader of its bytes. A method, because V8 makes a
   * function that is assigned to a property in the old generation, and frees nothing that it refers to before the next full collection.
   */
  listen(onOver: (() => void) | null, onHead: ((list: FieldList) => void) | null): void;
  /** Lends the stream the socket that it will be joined with, once the peer has answered 200. */
  lend(client: RawSocket): void;
  /** The peer has announced so many bytes (content-length). */
  expect(bytes: number): void;
  /** A header list of the peer has ended its direction. */
  remoteEnd(): void;
  /** A header list has ended our direction. */
  endTaken(): void;
  /** Ends both directions and drops waiting bytes. */
  reset(code: number): void;
  /** Ends the stream, which the session has forgotten. Bytes received before are still delivered, unless it is broken off. */
  finish(over: StreamOver): void;
}

/** The open streams of a connection. */
export interface OpenStreams extends Iterable<SessionStream> {
  readonly size: number;
  get(id: number): SessionStream | undefined;
  delete(id: number): void;
  clear(): SessionStream[];
}

/** The bytes of a connection: reads its frames, moves the DATA of its streams, and keeps the windows of both directions. */
export interface Wire {
  readonly live: OpenStreams;
  readonly destroyed: boolean;
  /** Bytes received so far; any is a sign of life. */
  readonly heard: number;
  /** Whether bytes of streams are known to wait for the socket. */
  readonly waits: boolean;
  /** Opens a stream: the next one of this side, or one whose HEADERS have come. */
  open(id: number): SessionStream;
  /** Makes the bytes of one of its streams accessible, once the request is answered. */
  opened(stream: SessionStream, headers: PeerHeaders, isServer: boolean): TunnelStream;
  /** Sends frames other than DATA, RST_STREAM and WINDOW_UPDATE of a stream. A peer that leaves too many unread is a fault. */
  control(frames: Buffer): void;
  /** Sends RST_STREAM and drops what comes, also on a stream that is not open. */
  resetStream(id: number, code: number): void;
  /** Applies settings of the peer, and sends the acknowledgement. */
  applySettings(settings: PeerSettings, acknowledgement: Buffer): void;
  /** The receive windows of each stream and of the connection have changed. */
  resize(stream: number, connection: number): void;
  /** Sends what waits, then ends the connection. */
  finish(): void;
  destroy(): void;
}

/** The part of a session that its wire needs. */
export interface WireHost {
  readonly bytes: ByteAccount;
  readonly windows: ReceiveWindows;
  /** Whether input and output have stopped. */
  readonly over: boolean;
  /** Runs `input`; a {@link ConnectionFault} that it throws ends the connection. */
  guard(input: () => void): void;
  /** A complete frame of the peer, of a known type other than DATA and WINDOW_UPDATE, and in its place. */
  frame(header: FrameHeader, payload: Buffer): void;
  /** Sends RST_STREAM and forgets the stream. */
  resetStream(stream: SessionStream, code: number): void;
  /** RST_STREAM was sent; forgets the stream. */
  resetSent(stream: SessionStream, over: StreamOver): void;
  /** The peer has reset the stream, perhaps after its END_STREAM; forgets it. */
  peerReset(stream: SessionStream, code: number, remoteEnded: boolean): void;
  /** Forgets a stream that has ended. */
  forget(stream: SessionStream, end: StreamEnd, over: StreamOver): void;
  /** Ends the connection because of a fault of the peer. */
  fail(reason: ConnectionFault): void;
  /** The connection has failed; {@link gone} follows. */
  failed(error: Error): void;
  /** The connection is closed. */
  gone(): void;
}

/** Makes the wire of a session; it calls back in later turns only. */
export type WireMaker = (host: WireHost) => Wire;

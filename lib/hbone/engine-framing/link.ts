import type { TLSSocket } from 'node:tls';
import { MeshError } from '../../errors/mesh-error.ts';
import type { Timer } from '../../clock/clock.ts';
import { UNACCOUNTED } from '../../net/held-bytes.ts';
import type { ByteAccount } from '../../net/held-bytes.ts';
import { TokenBucket } from '../../async/token-bucket.ts';
import { endedUnderneath, noCounts, silence } from '../engine.ts';
import type { TunnelEnd, TunnelOptions, TunnelPeer } from '../engine.ts';
import { CLOSE_LINGER_MS } from '../limits.ts';
import { FrameParser } from './frame-parser.ts';
import type { FrameHeader, FrameReceiver } from './frame-parser.ts';
import {
  CLIENT_PREFACE,
  ConnectionFault,
  DEFAULT_WINDOW,
  MAX_STREAM_ID,
  errorCode,
  fault,
  frameFlag,
  frameType,
  goawayFrame,
  headersFrames,
  peerFault,
  pingFrame,
  settingId,
  settingsAckFrame,
  settingsFrame,
  windowUpdateFrame,
} from './frames.ts';
import { HeaderBlocks } from './header-block.ts';
import type { HeaderBlock } from './header-block.ts';
import { HpackDecoder } from './hpack-decoder.ts';
import type { FieldList } from './hpack-decoder.ts';
import { HpackEncoder } from './hpack-encoder.ts';
import { DECODER_TABLE_BYTES, IDLE_FRAMES, WINDOW_UPDATES_PER_KIB } from './limits.ts';
import { Output } from './output.ts';
import { PeerSettings } from './peer-settings.ts';
import { Pings } from './pings.ts';
import { RecordBuffer, readRecords } from './record-buffer.ts';
import { ReceiveWindows } from './receive-windows.ts';
import { SessionTimers } from '../session-timers.ts';

/** The difference between the two sides of a connection. */
export interface LinkRole {
  readonly isServer: boolean;
  readonly maxHeaderListBytes: number;
  /** SETTINGS besides those both sides send. */
  readonly settings: readonly (readonly [id: number, value: number])[];
}

const KIB = 1_024;
const OVER_LIMIT = 'has not acknowledged SETTINGS, and too much is held for it';

/**
 * An HTTP/2 connection without its streams (RFC 9113 §3, §5.4, §6.5 to §6.8): preface, settings, pings, header compression and the
 * end.
 */
export abstract class FramingLink implements FrameReceiver {
  readonly peer: TunnelPeer;
  readonly counters = noCounts();
  readonly closed: Promise<TunnelEnd>;
  /** The error that ended the tunnel, for the messages of requests that still waited on it. */
  failure: Error | null = null;
  /** The reason given to `destroy`. */
  protected reason: MeshError | null = null;
  protected readonly options: TunnelOptions;
  protected readonly peerSettings: PeerSettings;
  readonly bytes: ByteAccount;
  readonly windows: ReceiveWindows;
  readonly output: Output;
  readonly records = new RecordBuffer();
  protected draining = false;
  /** Whether input and output have stopped. */
  protected over = false;
  /** The peer's budget of WINDOW_UPDATEs; bytes sent to it earn more. */
  protected readonly windowUpdates: TokenBucket;
  /** The peer's budget of frames without progress. */
  protected readonly idleFrames: TokenBucket;
  readonly #role: LinkRole;
  readonly #socket: TLSSocket;
  readonly #parser: FrameParser;
  readonly #blocks: HeaderBlocks;
  readonly #decoder: HpackDecoder;
  readonly #encoder = new HpackEncoder();
  readonly #timers: SessionTimers;
  readonly #pings: Pings;
  /** Whether SETTINGS of the peer have come. */
  #greeted = false;
  /** Runs while sent SETTINGS are not acknowledged. */
  #unacknowledged: Timer | null = null;
  #end: TunnelEnd | null = null;
  #probing: Promise<boolean> | null = null;

  constructor(socket: TLSSocket, peer: TunnelPeer, options: TunnelOptions, role: LinkRole) {
    const { settings, clock } = options;
    this.peer = peer;
    this.options = options;
    this.#role = role;
    this.#socket = socket;
    this.peerSettings = new PeerSettings(!role.isServer);
    this.#timers = new SessionTimers(clock);
    this.#decoder = new HpackDecoder(DECODER_TABLE_BYTES, role.maxHeaderListBytes);
    this.#blocks = new HeaderBlocks(role.maxHeaderListBytes);
    this.#parser = new FrameParser(this, {
      maxFrameSize: settings.frameSize,
      maxBlockBytes: role.maxHeaderListBytes,
      preface: role.isServer,
    });
    this.idleFrames = new TokenBucket(clock, IDLE_FRAMES);
    this.windowUpdates = new TokenBucket(clock, IDLE_FRAMES);
    this.output = new Output(socket, (bytes) => {
      this.windowUpdates.earn(1 + (bytes * WINDOW_UPDATES_PER_KIB) / KIB);
    });
    this.bytes = options.bytes ?? UNACCOUNTED;
    this.windows = new ReceiveWindows(settings, this.bytes, {
      holds: () => this.windows.received,
      evict: () => this.fail(peerFault(errorCode.enhanceYourCalm, OVER_LIMIT)),
      control: (frame) => this.control(frame),
      announce: (frame) => this.announce(frame),
      resizeStreams: (window) => this.resizeStreams(window),
    });
    const ignorePressure = this.bytes.onPressure(() => this.windows.fit());
    this.#pings = new Pings({
      intervalMs: settings.pingIntervalMs,
      timeoutMs: settings.pingTimeoutMs,
      timers: this.#timers,
      send: (frame) => this.control(frame),
      onAnswer: () => {
        this.counters.pingsAnswered += 1;
      },
      onTimeout: () => this.#silent(options.settings.pingTimeoutMs),
    });
    this.closed = new Promise((resolve) => {
      socket.once('close', () => {
        this.#stop();
        ignorePressure();
        resolve(this.#end ?? (this.draining ? 'drained' : 'peer-closed'));
      });
    });
  }

  get usable(): boolean {
    return !this.draining && !this.over && !this.#socket.destroyed;
  }

  abstract drain(): void;

  /** Ends the tunnel now. Open streams are reset, and on this side end with `reason` if it is given. */
  destroy(reason?: MeshError): void {
    if (!this.over) this.reason = reason ?? null;
    this.terminate('destroyed', errorCode.noError);
  }

  /** Asks for a sign of life. If none comes within `timeoutMs` it ends the tunnel and resolves to false. */
  async probe(timeoutMs: number): Promise<boolean> {
    if (this.over) return false;
    this.#probing ??= this.#probe(timeoutMs).finally(() => {
      this.#probing = null;
    });
    return this.#probing;
  }

  frameBegins({ type, flags, id, length }: Readonly<FrameHeader>): void {
    if (this.over) return;
    this.#blocks.check(type, id);
    const isSettings = type === frameType.settings && (flags & frameFlag.ack) === 0;
    if (!this.#greeted && !isSettings) throw fault('a frame before its SETTINGS');
    if (type === frameType.data) this.dataBegins(id, length);
    else if (type === frameType.pushPromise) throw fault('a PUSH_PROMISE');
    else if (type > frameType.continuation) this.spendIdleFrame();
  }

  frame(header: Readonly<FrameHeader>, payload: Buffer): void {
    if (this.over) return;
    const { type, id, flags } = header;
    const isAck = (flags & frameFlag.ack) !== 0;
    switch (type) {
      case frameType.headers:
        this.#takeBlock(this.#blocks.headers(header, payload));
        break;
      case frameType.continuation:
        if (payload.length === 0) this.spendIdleFrame();
        this.#takeBlock(this.#blocks.continuation(header, payload));
        break;
      case frameType.windowUpdate:
      case frameType.rstStream:
      case frameType.priority:
        this.streamFrame(type, id, payload);
        break;
      default:
        if (id !== 0) throw fault(`a frame of type ${type} on a stream`);
        if (type === frameType.settings) this.#takeSettings(isAck, payload);
        else if (type === frameType.ping) this.#takePing(isAck, payload);
        else this.goneAway(payload.readUInt32BE() & MAX_STREAM_ID, payload.readUInt32BE(4));
    }
  }

  abstract data(piece: Buffer): void;
  abstract dataEnds(header: Readonly<FrameHeader>): void;

  /** A DATA frame begins; `length` counts its padding. */
  protected abstract dataBegins(id: number, length: number): void;
  /** WINDOW_UPDATE, RST_STREAM or PRIORITY. */
  protected abstract streamFrame(type: number, id: number, payload: Buffer): void;
  protected abstract headersTaken(block: HeaderBlock, list: FieldList): void;
  /** The peer's initial window has changed by `by` bytes, perhaps negative. */
  protected abstract windowsGrown(by: number): void;
  /** Gives the streams a receive window of another size. */
  protected abstract resizeStreams(window: number): void;
  /** GOAWAY has come. */
  protected abstract goneAway(lastId: number, code: number): void;
  /** The last stream of the peer that was accepted. */
  protected abstract get lastTaken(): number;
  /** Breaks off the streams when the tunnel is over, with the error if that is a failure. */
  protected abstract endStreams(error: Error | null): void;
  /** Settings have come. */
  protected abstract changed(): void;

  /** Sends the greeting and begins to read. */
  protected start(): void {
    const { settings, credentials } = this.options;
    const { isServer, maxHeaderListBytes, settings: own } = this.#role;
    const windows = this.windows.first;
    const greeting = settingsFrame([
      ...own,
      [settingId.initialWindowSize, windows.stream],
      [settingId.maxFrameSize, settings.frameSize],
      [settingId.maxHeaderListSize, maxHeaderListBytes],
    ]);
    const more = windows.connection - DEFAULT_WINDOW;
    const parts = isServer ? [greeting] : [CLIENT_PREFACE, greeting];
    if (more > 0) parts.push(windowUpdateFrame(0, more));
    // A peer that has finished TLS must also speak HTTP/2 in time.
    this.#timers.after(settings.handshakeTimeoutMs, () => {
      if (!this.#greeted) this.terminate('preface-timeout', errorCode.settingsTimeout);
    });
    this.announce(Buffer.concat(parts));
    this.#timers.at(Math.min(credentials.notAfterMs, this.peer.notAfterMs), () => this.drain());
    this.#socket.on('error', (error) => {
      this.failure ??= error;
      this.#end ??= 'error';
    });
    readRecords(this.#socket, this.records, (chunk) => this.#receive(chunk));
  }

  /** Sends a frame other than DATA. */
  protected control(frame: Buffer): void {
    if (this.over || this.output.control(frame)) return;
    this.fail(peerFault(errorCode.enhanceYourCalm, 'reads nothing of what it is told'));
  }

  /** Sends SETTINGS, which the peer must acknowledge in time. Only one may be unacknowledged, since the answer does not name it. */
  protected announce(settings: Buffer): void {
    this.control(settings);
    if (this.over) return;
    const heard = (): number => this.#socket.bytesRead;
    const { handshakeTimeoutMs } = this.options.settings;
    this.#unacknowledged = this.#timers.afterSilence(handshakeTimeoutMs, heard, () =>
      this.fail(peerFault(errorCode.settingsTimeout, 'did not acknowledge SETTINGS')),
    );
  }

  protected sendHeaders(
    id: number,
    fields: readonly (readonly [name: string, value: string])[],
    endStream: boolean,
  ): void {
    const { maxFrameSize } = this.peerSettings;
    this.control(headersFrames(id, this.#encoder.encode(fields), { endStream, maxFrameSize }));
  }

  protected sendGoaway(lastId: number): void {
    this.control(goawayFrame(lastId, errorCode.noError));
  }

  /** Spends the peer's budget on a frame without progress; throws when it is used up. */
  protected spendIdleFrame(): void {
    if (this.idleFrames.spend()) return;
    throw peerFault(errorCode.enhanceYourCalm, 'sends frames to no end');
  }

  /** Runs the action when the peer has read all that was sent so far. */
  protected whenRead(action: () => void): void {
    this.#pings.ask(action);
  }

  /** Ends the tunnel because of a fault of the peer. */
  protected fail(reason: ConnectionFault, end: TunnelEnd = 'error'): void {
    if (this.over) return;
    this.failure ??= new MeshError('TUNNEL_PROTOCOL', reason.message, {
      cause: reason,
      detail: { code: reason.code },
    });
    this.#close(end, reason.code);
    this.#linger();
  }

  /** Ends the tunnel now. */
  protected terminate(end: TunnelEnd, code: number): void {
    if (!this.over) this.#close(end, code);
    this.#socket.destroy();
  }

  /** Closes a tunnel whose work is done. */
  protected closeGently(): void {
    if (this.over) return;
    this.#close(null, errorCode.noError);
    this.#linger();
  }

  async #probe(timeoutMs: number): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const heard = this.#socket.bytesRead;
    const timeout = this.#timers.afterInput(timeoutMs, () => {
      // The answer may wait behind all that was sent. Any received byte is a sign of life.
      if (this.#socket.bytesRead > heard) resolve(true);
      else this.#silent(timeoutMs);
    });
    this.whenRead(() => resolve(true));
    const alive = await Promise.race([promise, this.closed.then(() => false)]);
    timeout.cancel();
    return alive;
  }

  #silent(timeoutMs: number): void {
    this.reason ??= silence(timeoutMs);
    this.terminate('ping-timeout', errorCode.noError);
  }

  #receive(chunk: Buffer): void {
    if (this.over) return;
    try {
      this.#parser.push(chunk);
    } catch (error) {
      if (!(error instanceof ConnectionFault)) throw error;
      this.fail(error);
    }
    this.bytes.relieve();
  }

  #takeBlock(block: HeaderBlock | null): void {
    if (block !== null) this.headersTaken(block, this.#decoder.decode(block.bytes));
  }

  #takeSettings(isAck: boolean, payload: Buffer): void {
    if (isAck) {
      if (payload.length > 0) {
        throw peerFault(errorCode.frameSizeError, 'answered SETTINGS at length');
      }
      if (this.#unacknowledged === null) {
        this.spendIdleFrame();
        return;
      }
      this.#unacknowledged.cancel();
      this.#unacknowledged = null;
      this.windows.agreed();
      return;
    }
    this.spendIdleFrame();
    const before = this.peerSettings.initialWindow;
    this.peerSettings.apply(payload);
    this.output.maxFrameSize = this.peerSettings.maxFrameSize;
    this.#greeted = true;
    this.control(settingsAckFrame());
    this.windowsGrown(this.peerSettings.initialWindow - before);
    this.changed();
  }

  #takePing(isAck: boolean, payload: Buffer): void {
    if (isAck) {
      this.#pings.acknowledged(payload);
      return;
    }
    this.spendIdleFrame();
    this.control(pingFrame(payload, true));
  }

  #close(end: TunnelEnd | null, code: number): void {
    this.#end ??= end;
    this.over = true;
    this.output.control(goawayFrame(this.lastTaken, code));
    this.#stop();
    this.output.finish(() => this.#socket.end());
  }

  #stop(): void {
    this.over = true;
    this.#timers.cancelAll();
    // A tunnel that this side destroyed ends with its own reason.
    const failure = this.#end === 'destroyed' ? null : endedUnderneath(this.failure);
    this.windows.close();
    this.endStreams(this.reason ?? failure);
  }

  /** Gives the last frames time to arrive. */
  #linger(): void {
    this.#timers.after(CLOSE_LINGER_MS, () => this.#socket.destroy());
  }
}

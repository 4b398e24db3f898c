import { MeshError } from '../../errors/mesh-error.ts';
import type { Timer } from '../../clock/clock.ts';
import { UNACCOUNTED } from '../../net/held-bytes.ts';
import type { ByteAccount } from '../../net/held-bytes.ts';
import { TokenBucket } from '../../async/token-bucket.ts';
import { endedUnderneath, noCounts, silence } from '../engine.ts';
import type { TunnelEnd, TunnelOptions, TunnelPeer } from '../engine.ts';
import { CLOSE_LINGER_MS, MAX_LINGER_RENEWALS } from '../limits.ts';
import {
  CLIENT_PREFACE,
  ConnectionFault,
  DEFAULT_WINDOW,
  FRAME_HEADER_BYTES,
  MAX_STREAM_ID,
  errorCode,
  fault,
  frameFlag,
  frameType,
  goawayFrame,
  headersFrame,
  headersFrames,
  peerFault,
  pingFrame,
  settingId,
  settingsAckFrame,
  settingsFrame,
  windowUpdateFrame,
} from './frames.ts';
import type { FrameHeader } from './frames.ts';
import { HeaderBlocks } from './header-block.ts';
import type { HeaderBlock } from './header-block.ts';
import { HpackDecoder } from './hpack-decoder.ts';
import type { FieldList } from './hpack-decoder.ts';
import { HpackEncoder } from './hpack-encoder.ts';
import type { FieldPair } from './hpack-encoder.ts';
import { DECODER_TABLE_BYTES, IDLE_FRAMES } from './limits.ts';
import { PeerSettings } from './peer-settings.ts';
import { Pings } from './pings.ts';
import { ReceiveWindows } from './receive-windows.ts';
import type { StreamOver } from './resets.ts';
import type { StreamEnd } from './ended-streams.ts';
import { SessionTimers } from '../session-timers.ts';
import type { SessionStream, Wire, WireHost, WireMaker } from './wire.ts';

/** The difference between the two sides of a connection. */
export interface LinkRole {
  readonly isServer: boolean;
  readonly maxHeaderListBytes: number;
  /** SETTINGS besides those both sides send. */
  readonly settings: readonly (readonly [id: number, value: number])[];
}

const OVER_LIMIT = 'has not acknowledged SETTINGS, and too much is held for it';

/**
 * An HTTP/2 connection without its streams (RFC 9113 §3, §5.4, §6.5 to §6.8): preface, settings, pings, header compression and the
 * end.
 */
export abstract class FramingLink implements WireHost {
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
  protected readonly wire: Wire;
  /** Cancelled when the tunnel is over. */
  protected readonly timers: SessionTimers;
  protected draining = false;
  /** Whether input and output have stopped. */
  over = false;
  /** The peer's budget of frames without progress. */
  protected readonly idleFrames: TokenBucket;
  readonly #role: LinkRole;
  readonly #blocks: HeaderBlocks;
  readonly #decoder: HpackDecoder;
  readonly #encoder = new HpackEncoder();
  readonly #pings: Pings;
  /** Whether SETTINGS of the peer have come. */
  #greeted = false;
  /** Runs while sent SETTINGS are not acknowledged. */
  #unacknowledged: Timer | null = null;
  #end: TunnelEnd | null = null;
  #probing: Promise<boolean> | null = null;
  readonly #resolveClosed: (end: TunnelEnd) => void;
  readonly #ignorePressure: () => void;

  constructor(makeWire: WireMaker, peer: TunnelPeer, options: TunnelOptions, role: LinkRole) {
    const { settings, clock } = options;
    this.peer = peer;
    this.options = options;
    this.#role = role;
    this.peerSettings = new PeerSettings(!role.isServer);
    this.timers = new SessionTimers(clock);
    this.#decoder = new HpackDecoder(DECODER_TABLE_BYTES, role.maxHeaderListBytes, !role.isServer);
    this.#blocks = new HeaderBlocks(role.maxHeaderListBytes);
    this.idleFrames = new TokenBucket(clock, IDLE_FRAMES);
    this.bytes = options.bytes ?? UNACCOUNTED;
    this.windows = new ReceiveWindows(settings, this.bytes, {
      holds: () => this.windows.received,
      evict: () => this.fail(peerFault(errorCode.enhanceYourCalm, OVER_LIMIT)),
      control: (frame) => this.control(frame),
      announce: (frame) => this.announce(frame),
      resize: (stream, connection) => this.wire.resize(stream, connection),
    });
    this.#ignorePressure = this.bytes.onPressure(() => this.windows.fit());
    this.#pings = new Pings({
      intervalMs: settings.pingIntervalMs,
      timeoutMs: settings.pingTimeoutMs,
      timers: this.timers,
      send: (frame) => this.control(frame),
      onAnswer: () => {
        this.counters.pingsAnswered += 1;
      },
      onTimeout: () => this.#silent(options.settings.pingTimeoutMs),
    });
    const { promise, resolve } = Promise.withResolvers<TunnelEnd>();
    this.closed = promise;
    this.#resolveClosed = resolve;
    try {
      this.wire = makeWire(this);
    } catch (error) {
      this.#ignorePressure();
      this.windows.close();
      throw error;
    }
  }

  get usable(): boolean {
    return !this.draining && !this.over && !this.wire.destroyed;
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

  frame(header: FrameHeader, payload: Buffer): void {
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

  guard(input: () => void): void {
    try {
      input();
    } catch (error) {
      if (!(error instanceof ConnectionFault)) throw error;
      this.fail(error);
    }
  }

  failed(error: Error): void {
    this.failure ??= error;
    this.#end ??= 'error';
  }

  gone(): void {
    this.#stop();
    this.#ignorePressure();
    this.#resolveClosed(this.#end ?? (this.draining ? 'drained' : 'peer-closed'));
  }

  abstract resetStream(stream: SessionStream, code: number): void;
  abstract resetSent(stream: SessionStream, over: StreamOver): void;
  abstract peerReset(stream: SessionStream, code: number, remoteEnded: boolean): void;
  abstract forget(stream: SessionStream, end: StreamEnd, over: StreamOver): void;

  /** RST_STREAM or PRIORITY. */
  protected abstract streamFrame(type: number, id: number, payload: Buffer): void;
  protected abstract headersTaken(block: HeaderBlock, list: FieldList): void;
  /** GOAWAY has come. */
  protected abstract goneAway(lastId: number, code: number): void;
  /** The last stream of the peer that was accepted. */
  protected abstract get lastTaken(): number;
  /** Breaks off the streams when the tunnel is over, with the error if that is a failure. */
  protected abstract endStreams(error: Error | null): void;
  /** Settings have come. */
  protected abstract changed(): void;

  /** Sends the greeting. */
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
    this.timers.after(settings.handshakeTimeoutMs, () => {
      if (!this.#greeted) this.terminate('preface-timeout', errorCode.settingsTimeout);
    });
    this.announce(Buffer.concat(parts));
    this.timers.at(Math.min(credentials.notAfterMs, this.peer.notAfterMs), () => this.drain());
  }

  /** Sends a frame other than DATA. */
  protected control(frame: Buffer): void {
    if (!this.over) this.wire.control(frame);
  }

  /** Sends SETTINGS, which the peer must acknowledge in time. Only one may be unacknowledged, since the answer does not name it. */
  protected announce(settings: Buffer): void {
    this.control(settings);
    if (this.over) return;
    const heard = (): number => this.wire.heard;
    const { handshakeTimeoutMs } = this.options.settings;
    this.#unacknowledged = this.timers.afterSilence(handshakeTimeoutMs, heard, () =>
      this.fail(peerFault(errorCode.settingsTimeout, 'did not acknowledge SETTINGS')),
    );
  }

  protected sendHeaders(id: number, fields: readonly FieldPair[], endStream: boolean): void {
    const { maxFrameSize } = this.peerSettings;
    const bytes = this.#encoder.encode(fields, FRAME_HEADER_BYTES);
    const block = bytes.length - FRAME_HEADER_BYTES;
    this.control(
      block <= maxFrameSize
        ? headersFrame(id, bytes, endStream)
        : headersFrames(id, bytes.subarray(FRAME_HEADER_BYTES), { endStream, maxFrameSize }),
    );
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
  fail(reason: ConnectionFault, end: TunnelEnd = 'error'): void {
    if (this.over) return;
    this.failure ??= new MeshError('TUNNEL_PROTOCOL', reason.message, {
      cause: reason,
      detail: { code: reason.code },
    });
    this.#close(end, reason.code);
    // Gives the last frames time to arrive.
    this.timers.after(CLOSE_LINGER_MS, () => this.wire.destroy());
  }

  /** Ends the tunnel now. */
  protected terminate(end: TunnelEnd, code: number): void {
    if (!this.over) this.#close(end, code);
    this.wire.destroy();
  }

  /** Closes a tunnel whose work is done. */
  protected closeGently(): void {
    if (this.over) return;
    this.#close(null, errorCode.noError);
    this.#linger(MAX_LINGER_RENEWALS);
  }

  async #probe(timeoutMs: number): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const { heard } = this.wire;
    const timeout = this.timers.afterInput(timeoutMs, () => {
      // The answer may wait behind all that was sent. Any received byte is a sign of life.
      if (this.wire.heard > heard) resolve(true);
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
    this.peerSettings.apply(payload);
    this.#greeted = true;
    this.wire.applySettings(this.peerSettings, settingsAckFrame());
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

  /** Gives the last frames time to arrive, and more while the last bytes of its streams wait for a slow network. */
  #linger(renewals: number): void {
    this.timers.after(CLOSE_LINGER_MS, () => {
      if (renewals > 0 && this.wire.waits) this.#linger(renewals - 1);
      else this.wire.destroy();
    });
  }

  #close(end: TunnelEnd | null, code: number): void {
    this.#end ??= end;
    this.over = true;
    this.wire.control(goawayFrame(this.lastTaken, code));
    this.#stop();
    this.wire.finish();
  }

  #stop(): void {
    this.over = true;
    this.timers.cancelAll();
    // A tunnel that this side destroyed ends with its own reason.
    const failure = this.#end === 'destroyed' ? null : endedUnderneath(this.failure);
    this.windows.close();
    this.endStreams(this.reason ?? failure);
  }
}

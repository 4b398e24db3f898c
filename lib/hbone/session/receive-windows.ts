import type { ByteAccount, Debtor } from '../../net/held-bytes.ts';
import type { TunnelSettings } from '../engine.ts';
import { DEFAULT_WINDOW, settingId, settingsFrame, windowUpdateFrame } from './frames.ts';
import { PRESSED_WINDOW_BYTES } from './limits.ts';

/**
 * The part of the headroom that a connection window may take. A native thread may give the window back while it holds a quarter of it
 * that this thread has not heard of; pressure begins that much later.
 */
const WINDOW_SHARE = 3 / 4;

/** Bytes that a peer may send before anything is read. */
export interface Windows {
  readonly stream: number;
  readonly connection: number;
}

/** The part of the connection that the windows need. */
export interface WindowsHost extends Debtor {
  /** Sends a frame. */
  control(frame: Buffer): void;
  /** Sends SETTINGS, which the peer must acknowledge. */
  announce(settings: Buffer): void;
  /** The windows of each stream and of the connection have changed. */
  resize(stream: number, connection: number): void;
}

/**
 * Sizes of the receive windows of one connection (RFC 9113 §5.2, §6.9), and the count of received bytes. Windows are smaller while the
 * pod's account is pressed. The wire gives them back as bytes arrive.
 */
export class ReceiveWindows {
  readonly #bytes: ByteAccount;
  readonly #settings: TunnelSettings;
  readonly #host: WindowsHost;
  /** Bytes that the peer may have under way on the connection. A tunnel that begins under pressure starts with fewer. */
  #connection: number;
  /** Received bytes that wait for applications. */
  #received = 0;
  /** The stream window announced last, and whether the peer has acknowledged it. */
  #announced: number;
  #agreed = false;
  /** The stream window that the peer may use until it acknowledges. */
  #stream: number;
  /** Ends the debt of a peer that has not acknowledged yet. */
  #settle: (() => void) | null;
  #closed = false;

  constructor(settings: TunnelSettings, bytes: ByteAccount, host: WindowsHost) {
    this.#settings = settings;
    this.#bytes = bytes;
    this.#host = host;
    this.#connection = bytes.pressed ? DEFAULT_WINDOW : this.#fullConnection;
    this.#announced = this.#wanted;
    // The peer may use the default until it knows the settings.
    this.#stream = Math.max(this.#announced, DEFAULT_WINDOW);
    this.#settle = bytes.owe(host);
  }

  /** The windows to announce at first. */
  get first(): Windows {
    return { stream: this.#announced, connection: this.#connection };
  }

  /** The window of a new stream. */
  get stream(): number {
    return this.#stream;
  }

  /** Received bytes that are held. */
  get received(): number {
    return this.#received;
  }

  /** Adds received bytes that wait for an application; a negative number subtracts. */
  queue(bytes: number): void {
    this.#received += bytes;
    this.#bytes.receive(bytes);
  }

  /** The peer has acknowledged the window announced last. */
  agreed(): void {
    this.#agreed = true;
    this.#paid();
    this.#resize(this.#announced);
    this.fit();
  }

  /**
   * Announces smaller stream windows while too much is held, and the usual ones afterwards (RFC 9113 §6.9.2). Stalled readers keep what
   * they have, and every stream still has a window.
   */
  fit(): void {
    if (this.#closed) return;
    const wanted = this.#wanted;
    // One announcement at a time: an acknowledgement does not say which one it means.
    if (this.#agreed && wanted !== this.#announced) {
      this.#announced = wanted;
      this.#agreed = false;
      this.#settle = this.#bytes.owe(this.#host);
      this.#host.announce(settingsFrame([[settingId.initialWindowSize, wanted]]));
      // The peer may use a larger window at once, and uses a smaller one only from its acknowledgement on.
      this.#resize(Math.max(wanted, this.#stream));
    }
    this.#widen();
  }

  /** Stops all announcements when the connection is over. Held bytes stay charged until they are read or dropped. */
  close(): void {
    this.#closed = true;
    this.#paid();
  }

  get #wanted(): number {
    const { streamWindow } = this.#settings;
    return this.#bytes.pressed ? Math.min(PRESSED_WINDOW_BYTES, streamWindow) : streamWindow;
  }

  /** The full connection window. It fits the headroom of the pod, since all of it may be under way when pressure begins. */
  get #fullConnection(): number {
    const most = Math.min(
      this.#settings.connectionWindow,
      Math.floor(this.#bytes.headroom * WINDOW_SHARE),
    );
    return Math.max(most, DEFAULT_WINDOW);
  }

  /** Gives a connection that began with a small window the full one when there is room and its peer has answered. */
  #widen(): void {
    const more = this.#fullConnection - this.#connection;
    if (this.#bytes.pressed || !this.#agreed || more <= 0) return;
    this.#connection += more;
    this.#host.control(windowUpdateFrame(0, more));
    this.#host.resize(this.#stream, this.#connection);
  }

  #resize(window: number): void {
    if (window === this.#stream) return;
    this.#stream = window;
    this.#host.resize(window, this.#connection);
  }

  #paid(): void {
    this.#settle?.();
    this.#settle = null;
  }
}

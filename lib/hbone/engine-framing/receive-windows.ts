import type { ByteAccount, Debtor } from '../../net/held-bytes.ts';
import type { TunnelSettings } from '../engine.ts';
import { DEFAULT_WINDOW, settingId, settingsFrame, windowUpdateFrame } from './frames.ts';
import { MAX_HELD_BYTES, PRESSED_WINDOW_BYTES, RELEASE_SHARE } from './limits.ts';

/** What a peer may send before anything is read, bytes. */
export interface Windows {
  readonly stream: number;
  readonly connection: number;
}

/** What the windows need of their connection. */
export interface WindowsHost extends Debtor {
  /** Sends a frame. */
  control(frame: Buffer): void;
  /** Sends SETTINGS, which the peer must acknowledge. */
  announce(settings: Buffer): void;
  /** The streams have a window of another size from now on. */
  resizeStreams(window: number): void;
}

/**
 * What the peer of one connection may send us (RFC 9113 §5.2, §6.9), and what we hold of it: the usual windows, and smaller ones
 * while the pod's account is pressed.
 */
export class ReceiveWindows {
  readonly #bytes: ByteAccount;
  readonly #settings: TunnelSettings;
  readonly #host: WindowsHost;
  /** What the peer may have under way altogether: less while its pod holds too much as the tunnel begins. */
  #connection: number;
  /** What it may still send of that, and what of it is ours to give back. */
  #left: number;
  #unreleased = 0;
  /** What waits for readers. */
  #held = 0;
  /** That, and what waits for applications. */
  #received = 0;
  /** The window of streams that we have told the peer of, and whether it has taken note of our last word. */
  #announced: number;
  #agreed = false;
  /** What the peer may use of a stream until it has taken note. */
  #stream: number;
  /** Ends the debt of a peer that has not yet taken note. */
  #settle: (() => void) | null;
  #closed = false;

  constructor(settings: TunnelSettings, bytes: ByteAccount, host: WindowsHost) {
    this.#settings = settings;
    this.#bytes = bytes;
    this.#host = host;
    this.#connection = bytes.pressed ? DEFAULT_WINDOW : this.#fullConnection;
    this.#left = this.#connection;
    this.#announced = this.#wanted;
    // Until the peer knows of our settings it may use the default.
    this.#stream = Math.max(this.#announced, DEFAULT_WINDOW);
    this.#settle = bytes.owe(host);
  }

  /** What the peer is told at first. */
  get first(): Windows {
    return { stream: this.#announced, connection: this.#connection };
  }

  /** The window of a new stream. */
  get stream(): number {
    return this.#stream;
  }

  /** What has come and is held, bytes. */
  get received(): number {
    return this.#received;
  }

  /** Takes so much from the connection's window; false when the peer had less. */
  take(bytes: number): boolean {
    if (bytes > this.#left) return false;
    this.#left -= bytes;
    this.#unreleased += bytes;
    this.#release();
    return true;
  }

  /** More or fewer received bytes wait for their reader. */
  hold(bytes: number): void {
    this.#held += bytes;
    this.queue(bytes);
    if (bytes < 0) this.#release();
  }

  /** More or fewer received bytes wait for an application that has been handed them. */
  queue(bytes: number): void {
    this.#received += bytes;
    this.#bytes.receive(bytes);
  }

  /** The peer has taken note of our last word. */
  agreed(): void {
    this.#agreed = true;
    this.#paid();
    this.#resize(this.#announced);
    this.fit();
  }

  /**
   * Tells the peer of smaller stream windows while too much is held, and of the usual ones afterwards (RFC 9113 §6.9.2). Stalled
   * readers then keep what they have, and every stream still has a window.
   */
  fit(): void {
    if (this.#closed) return;
    const wanted = this.#wanted;
    // One word at a time: the peer's answers do not say which they mean.
    if (this.#agreed && wanted !== this.#announced) {
      this.#announced = wanted;
      this.#agreed = false;
      this.#settle = this.#bytes.owe(this.#host);
      this.#host.announce(settingsFrame([[settingId.initialWindowSize, wanted]]));
      // It may use more as soon as it knows, and less only when it says so.
      this.#resize(Math.max(wanted, this.#stream));
    }
    this.#widen();
    this.#release();
  }

  /** The connection is over: nothing is told the peer any more. What is held stays charged until it is read or dropped. */
  close(): void {
    this.#closed = true;
    this.#paid();
  }

  get #wanted(): number {
    const { streamWindow } = this.#settings;
    return this.#bytes.pressed ? Math.min(PRESSED_WINDOW_BYTES, streamWindow) : streamWindow;
  }

  /** No more than its pod has room for once it is pressed: all of it may be under way then. */
  get #fullConnection(): number {
    const most = Math.min(this.#settings.connectionWindow, Math.floor(this.#bytes.headroom));
    return Math.max(most, DEFAULT_WINDOW);
  }

  /** A connection that began with a small window gets the usual one when there is room and its peer answers. */
  #widen(): void {
    const more = this.#fullConnection - this.#connection;
    if (this.#bytes.pressed || !this.#agreed || more <= 0) return;
    this.#connection += more;
    this.#left += more;
    this.#host.control(windowUpdateFrame(0, more));
  }

  #resize(window: number): void {
    if (window === this.#stream) return;
    this.#stream = window;
    this.#host.resizeStreams(window);
  }

  /**
   * Gives the connection window back as bytes arrive, not as they are read, so that a reader who stalls does not take it
   * from the other streams; only when very much is unread altogether it waits, and while the peer has not taken note of smaller windows.
   */
  #release(): void {
    if (this.#closed || this.#unreleased < this.#connection / RELEASE_SHARE) return;
    const isSmall = this.#stream <= PRESSED_WINDOW_BYTES;
    if (!isSmall && (this.#bytes.pressed || this.#held > MAX_HELD_BYTES)) return;
    const bytes = this.#unreleased;
    this.#unreleased = 0;
    this.#left += bytes;
    this.#host.control(windowUpdateFrame(0, bytes));
  }

  #paid(): void {
    this.#settle?.();
    this.#settle = null;
  }
}

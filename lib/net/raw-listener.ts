import type { Clock, Timer } from '../clock/clock.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { closeFd } from '../linux/netns.ts';
import { acceptQueued, watchListening } from '../linux/sockets.ts';
import type { QueuedConnection, Watch } from '../linux/sockets.ts';

/** Connections that one turn of the event loop takes from one listener, so that others get their turns. */
const MAX_BATCH = 32;

/** Time after which a listener that could not accept tries again; what arrives meanwhile waits in the kernel's queue. */
const RETRY_MS = 100;

/** Receives what a {@link RawListener} accepts. */
export interface RawListenerOptions {
  /** Whether connections come by redirection, so that conntrack knows their first destination. */
  readonly redirected: boolean;
  readonly clock: Clock;
  /** A connection that this thread holds (lib/net/raw-socket.ts). */
  readonly onAccepted: (connection: QueuedConnection) => void;
  /** The kernel did not let it accept; it tries again. */
  readonly onRefused: (error: MeshError) => void;
}

/** A listening descriptor whose connections are accepted in batches, without Node sockets. */
export class RawListener {
  readonly #fd: number;
  readonly #options: RawListenerOptions;
  #watch: Watch | null = null;
  #retry: Timer | null = null;
  #open = true;

  /** Takes the descriptor unless it throws NATIVE_SYSCALL. */
  constructor(fd: number, options: RawListenerOptions) {
    this.#fd = fd;
    this.#options = options;
    this.#listen();
  }

  /** Accepts nothing more. Of the connections that wait, at most `queued` are still accepted, all within this call. */
  close(queued: number): void {
    if (!this.#open) return;
    for (let left = queued; left > 0;) {
      const taken = this.#accept(Math.min(left, MAX_BATCH));
      if (taken === 0) break;
      left -= taken;
    }
    this.#open = false;
    this.#watch?.close();
    this.#retry?.cancel();
    closeFd(this.#fd);
  }

  #listen(): void {
    this.#watch = watchListening(this.#fd, () => this.#accept(MAX_BATCH));
  }

  /** The number of connections that were accepted. */
  #accept(most: number): number {
    if (!this.#open) return 0;
    const { redirected, onAccepted, onRefused } = this.#options;
    try {
      const queued = acceptQueued(this.#fd, redirected, most);
      for (const connection of queued) onAccepted(connection);
      return queued.length;
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      this.#pause();
      onRefused(error);
      return 0;
    }
  }

  /** The kernel would report the waiting connections again and again. */
  #pause(): void {
    this.#watch?.close();
    this.#watch = null;
    this.#retry?.cancel();
    this.#retry = this.#options.clock.after(RETRY_MS, () => this.#listen());
  }
}

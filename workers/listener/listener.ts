import { Roster } from '../../lib/collections/roster.ts';
import type { Listed } from '../../lib/collections/roster.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { isExhausted, lacksIpv6 } from '../../lib/linux/errno.ts';
import { closeFd } from '../../lib/linux/netns.ts';
import { listenTcp } from '../../lib/linux/sockets.ts';
import type { ListenResult, QueuedConnection, TcpOptions } from '../../lib/linux/sockets.ts';
import { RawListener } from '../../lib/net/raw-listener.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';
import { namedEnds } from '../../lib/net/socket.ts';
import { MAX_QUEUED_ACCEPTED } from './limits.ts';
import type { CapturedSocket } from './plain/captured-socket.ts';
import type { PodContext } from './thread-context.ts';
import { listenerMarkOf } from './upstream.ts';

/** The listeners of a pod (docs/spec/dataplane.md §1). */
export type ListenerKind = 'outbound' | 'inbound-plaintext' | 'inbound-hbone' | 'socks5';

/** Serves an accepted connection to its end, and closes it. Never rejects. */
export type ServeSocket = (captured: CapturedSocket) => Promise<void>;

/** A connection that was accepted; `over` never rejects. */
interface Accepted extends Listed {
  readonly socket: RawSocket;
  readonly over: Promise<void>;
}

/** One listening port inside the pod's namespace. */
export class Listener {
  readonly serve: ServeSocket;
  readonly #pod: PodContext;
  readonly #kind: ListenerKind;
  readonly #port: number;
  readonly #address: string | null;
  readonly #onClosed: () => void;
  readonly #open = new Roster<Accepted>();
  #listener: RawListener | null = null;
  #transparent = false;
  #saidUnnamed = false;

  /** `onClosed` is told each time an accepted connection is over. */
  constructor(
    pod: PodContext,
    kind: ListenerKind,
    options: {
      /** Null: all addresses of both families. */
      readonly address?: string | null;
      readonly port: number;
      readonly serve: ServeSocket;
      readonly onClosed: () => void;
    },
  ) {
    this.serve = options.serve;
    this.#onClosed = options.onClosed;
    this.#pod = pod;
    this.#kind = kind;
    this.#port = options.port;
    this.#address = options.address ?? null;
  }

  /** Accepted connections that are not over. */
  get sockets(): number {
    return this.#open.size;
  }

  get transparent(): boolean {
    return this.#transparent;
  }

  /** Binds and listens. Throws NATIVE_SYSCALL that names the port. */
  open(): void {
    const { fd, transparent } = this.#bind();
    this.#transparent = transparent;
    try {
      this.#listener = new RawListener(fd, {
        redirected: this.#kind === 'outbound' || this.#kind === 'inbound-plaintext',
        clock: this.#pod.thread.clock,
        onAccepted: (connection) => this.#accept(connection),
        onRefused: (error) => this.#failed(error),
      });
    } catch (error) {
      closeFd(fd);
      throw error;
    }
  }

  /**
   * Accepts nothing more; open sockets stay. Connections that wait in the queue go to another listener of the port where
   * the kernel does that, else are served here.
   */
  close(): void {
    const listener = this.#listener;
    this.#listener = null;
    listener?.close(this.#pod.migrates ? 0 : MAX_QUEUED_ACCEPTED);
  }

  /** Closes and ends what is open; resolves when all of it is over. */
  async end(): Promise<void> {
    this.close();
    const over: Promise<void>[] = [];
    for (const accepted of this.#open) {
      const { socket } = accepted;
      // A pending decision finds its socket closed. What goes on without the socket is ended by its pod.
      if (socket.gone) over.push(accepted.over);
      else if (this.#kind === 'inbound-hbone') over.push(endTunnel(socket));
      else socket.reset();
    }
    await Promise.all(over);
  }

  #bind(): ListenResult {
    const { settings } = this.#pod.thread;
    const options = {
      netnsFd: this.#pod.netnsFd,
      port: this.#port,
      mark: listenerMarkOf(this.#pod),
      reusePort: settings.portReuse,
      tcp: this.#tcpOptions,
      transparent: this.#pod.pod.own === true ? 'off' : settings.originalSource,
    } as const;
    if (this.#address !== null) {
      return listenTcp({ ...options, address: this.#address, transparent: 'off' });
    }
    if (!settings.ipv6) return listenTcp({ ...options, address: '0.0.0.0' });
    try {
      return listenTcp({ ...options, address: '::' });
    } catch (error) {
      if (!lacksIpv6(error)) throw error;
      this.#pod.thread.log.info({ podUid: this.#pod.pod.uid, port: this.#port }, 'pod.ipv4-only');
      return listenTcp({ ...options, address: '0.0.0.0' });
    }
  }

  #accept([fd, names]: QueuedConnection): void {
    const socket = new RawSocket(fd);
    const { metrics, traffic, descriptors } = this.#pod.thread;
    if (names === null || typeof names === 'string') {
      // Null: the client is gone before it was looked at.
      if (names !== null) this.#unnamed(names);
      socket.reset();
      return;
    }
    if (!descriptors.admits(fd)) {
      metrics.earlyDenials['descriptor-limit'] += 1;
      socket.reset();
      return;
    }
    const { remote: source, local, original } = namedEnds(names);
    // Traffic that leaves the pod has the pod's own address.
    const peer = this.#kind === 'outbound' || this.#kind === 'socks5' ? null : source.ip;
    const { admission } = this.#pod;
    const refused = admission.enter(peer);
    if (refused !== null) {
      metrics.earlyDenials[refused] += 1;
      socket.reset();
      return;
    }
    const counted = traffic.socketOpened(
      this.#kind.startsWith('inbound') ? 'destination' : 'source',
    );
    const ended = (): void => {
      this.#open.delete(accepted);
      admission.leave(peer);
      counted();
      this.#onClosed();
    };
    const destination = original ?? local;
    const over = this.serve({ socket, source, local, destination }).then(ended);
    const accepted: Accepted = { place: -1, socket, over };
    this.#open.add(accepted);
  }

  /**
   * Set on the listening socket; accepted sockets inherit them, which saves calls per connection. Connections that waited at a predecessor's
   * when the kernel handed it over has those of the predecessor.
   */
  get #tcpOptions(): TcpOptions {
    const { settings, tcpOptions } = this.#pod.thread;
    if (this.#kind === 'socks5') return { noDelay: true };
    if (this.#kind === 'outbound') return { ...tcpOptions, local: true };
    if (this.#kind === 'inbound-plaintext') return tcpOptions;
    return { noDelay: true, userTimeoutMs: settings.tunnelUserTimeoutMs };
  }

  /** One line is enough: what the kernel refuses for one connection it refuses for all. */
  #unnamed(call: string): void {
    const { log, metrics } = this.#pod.thread;
    metrics.earlyDenials['socket-error'] += 1;
    if (this.#saidUnnamed) return;
    this.#saidUnnamed = true;
    log.warn({ podUid: this.#pod.pod.uid, listener: this.#kind, call }, 'socket.names-failed');
  }

  #failed(error: Error): void {
    const { descriptors, log, metrics } = this.#pod.thread;
    metrics.earlyDenials['socket-error'] += 1;
    if (isExhausted(error)) descriptors.note(error);
    else {
      const fields = { podUid: this.#pod.pod.uid, listener: this.#kind, error: errorText(error) };
      log.error(fields, 'listener.error');
    }
  }
}

/** Closes the socket of a tunnel, whose last words may still be on their way: nothing of them is dropped. */
function endTunnel(socket: RawSocket): Promise<void> {
  const adopted = socket.adopt();
  return new Promise((resolve) => {
    adopted.once('close', () => resolve());
    adopted.destroy();
  });
}

import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { Roster } from '../../lib/collections/roster.ts';
import type { Listed } from '../../lib/collections/roster.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { lacksIpv6 } from '../../lib/linux/errno.ts';
import { closeFd } from '../../lib/linux/netns.ts';
import { listenTcp } from '../../lib/linux/sockets.ts';
import type { ListenResult, TcpOptions } from '../../lib/linux/sockets.ts';
import { acceptedEnds, resetSocket, serveFd, socketFd } from '../../lib/net/socket.ts';
import type { AcceptedEnds, Endpoint } from '../../lib/net/socket.ts';
import type { PodContext } from './thread-context.ts';
import { takeQueued } from './migration.ts';
import { listenerMarkOf } from './upstream.ts';

/** The listeners of a pod (docs/spec/dataplane.md §1). */
export type ListenerKind = 'outbound' | 'inbound-plaintext' | 'inbound-hbone' | 'socks5';

/**
 * Serves an accepted socket, which is paused. Never rejects. A connection is over when this has resolved and the socket is
 * closed: some go on without their socket.
 */
export type ServeSocket = (
  socket: Socket,
  ends: { readonly source: Endpoint; readonly destination: Endpoint },
) => Promise<void>;

/** A connection that was accepted; `over` never rejects. */
interface Accepted extends Listed {
  /** Null once it is closed. */
  socket: Socket | null;
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
  #server: Server | null = null;
  #transparent = false;
  #saidUnnamed = false;

  /** `onClosed` is told each time an accepted socket has closed. */
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

  /** Binds and listens. Rejects with NATIVE_SYSCALL that names the port. */
  async open(): Promise<void> {
    const { fd, transparent } = this.#bind();
    this.#transparent = transparent;
    const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) =>
      this.#accept(socket),
    );
    this.#server = server;
    try {
      await serveFd(server, fd, (error) => this.#failed(error));
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
    const server = this.#server;
    this.#server = null;
    if (server === null) return;
    const queued = this.#pod.migrates ? [] : takeQueued(server);
    server.close();
    for (const socket of queued) this.#accept(socket);
  }

  /** Closes and destroys what is open; resolves when all of it is over. */
  async end(): Promise<void> {
    this.close();
    // A pending decision finds its socket closed. Work that goes on without the socket ends by itself.
    const over = [...this.#open].map(({ socket, over }) =>
      socket === null ? over : closed(socket),
    );
    for (const { socket } of this.#open) {
      if (socket === null) continue;
      // A tunnel's last words may still be on their way; anybody else must not take the end for a clean one.
      if (this.#kind === 'inbound-hbone') socket.destroy();
      else resetSocket(socket);
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

  #accept(socket: Socket): void {
    // Attached at once: an unhandled error of a socket would end the process.
    socket.on('error', ignore);
    const { metrics, traffic, descriptors } = this.#pod.thread;
    const fd = socketFd(socket);
    const ends = fd === null ? null : this.#ends(fd);
    // The client is gone before it was looked at, or was turned away.
    if (fd === null || ends === null) {
      resetSocket(socket);
      return;
    }
    if (!descriptors.admits(fd)) {
      metrics.earlyDenials['descriptor-limit'] += 1;
      resetSocket(socket);
      return;
    }
    const { source, destination } = ends;
    // Traffic that leaves the pod has the pod's own address.
    const peer = this.#kind === 'outbound' || this.#kind === 'socks5' ? null : source.ip;
    const { admission } = this.#pod;
    const refused = admission.enter(peer);
    if (refused !== null) {
      metrics.earlyDenials[refused] += 1;
      resetSocket(socket);
      return;
    }
    const counted = traffic.socketOpened(
      this.#kind.startsWith('inbound') ? 'destination' : 'source',
    );
    const { promise: over, resolve } = Promise.withResolvers<void>();
    const accepted: Accepted = { place: -1, socket, over };
    this.#open.add(accepted);
    // The socket's end and the connection's, in whichever order they come.
    let awaited = 2;
    const ended = (): void => {
      awaited -= 1;
      if (awaited > 0) return;
      this.#open.delete(accepted);
      admission.leave(peer);
      counted();
      this.#onClosed();
      resolve();
    };
    socket.once('close', () => {
      accepted.socket = null;
      ended();
    });
    void this.serve(socket, { source, destination }).then(ended);
  }

  /** Reads the client's address and its destination; null when the client is gone or the kernel does not tell. */
  #ends(fd: number): { readonly source: Endpoint; readonly destination: Endpoint } | null {
    const redirected = this.#kind === 'outbound' || this.#kind === 'inbound-plaintext';
    let ends: AcceptedEnds | null;
    try {
      ends = acceptedEnds(fd, redirected);
    } catch (error) {
      this.#unnamed(errorText(error));
      return null;
    }
    return ends && { source: ends.remote, destination: ends.original ?? ends.local };
  }

  /**
   * Set on the listening socket; accepted sockets inherit them, which saves calls per connection. Connections that waited at a predecessor's
   * when the kernel handed it over has those of the predecessor.
   */
  get #tcpOptions(): TcpOptions {
    const { settings, tcpOptions } = this.#pod.thread;
    if (this.#kind === 'socks5') return { noDelay: true };
    if (this.#kind !== 'inbound-hbone') return tcpOptions;
    return { noDelay: true, userTimeoutMs: settings.tunnelUserTimeoutMs };
  }

  /** One line is enough: what the kernel refuses for one connection it refuses for all. */
  #unnamed(error: string): void {
    const { log, metrics } = this.#pod.thread;
    metrics.earlyDenials['socket-error'] += 1;
    if (this.#saidUnnamed) return;
    this.#saidUnnamed = true;
    log.warn({ podUid: this.#pod.pod.uid, listener: this.#kind, error }, 'socket.names-failed');
  }

  #failed(error: Error): void {
    this.#pod.thread.log.error(
      { podUid: this.#pod.pod.uid, listener: this.#kind, error: errorText(error) },
      'listener.error',
    );
  }
}

function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

function ignore(): void {}

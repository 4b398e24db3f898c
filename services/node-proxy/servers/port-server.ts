import type { Socket } from 'node:net';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { HttpServer } from '../../../lib/http/http-server.ts';
import type { HttpHandler } from '../../../lib/http/routes.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { socketFd } from '../../../lib/net/socket.ts';
import { PORT_RECLAIM_MS, SERVER_SPARED_DESCRIPTORS } from '../limits.ts';

/** Attempts to find an ephemeral port that is free on every host. */
const EPHEMERAL_ATTEMPTS = 5;

/** Settings of {@link PortServer}. */
export interface PortServerOptions {
  readonly name: string;
  /** The standard port; 0 = any. */
  readonly port: number;
  /** Addresses to listen on, with the same port on each. Addresses that the machine lacks are skipped, except the first. */
  readonly hosts: readonly string[];
  readonly handler: HttpHandler;
}

/** Collaborators of {@link PortServer}. */
export interface PortServerDeps {
  readonly log: Logger;
  readonly clock: Clock;
  /** How many descriptors the process may have. */
  readonly descriptors: number;
}

/** An HTTP server on a standard port, or on an ephemeral one while another process holds the standard port. */
export class PortServer {
  readonly #options: PortServerOptions;
  readonly #log: Logger;
  readonly #clock: Clock;
  /** The first of the descriptors that are kept for others. */
  readonly #spared: number;
  #servers: HttpServer[] = [];
  #reclaim: Timer | null = null;
  #closed = false;
  #yielded = false;
  #reportedExhausted = false;

  constructor(options: PortServerOptions, deps: PortServerDeps) {
    const { descriptors } = deps;
    this.#spared = descriptors - Math.min(SERVER_SPARED_DESCRIPTORS, Math.ceil(descriptors / 16));
    this.#options = options;
    this.#log = deps.log;
    this.#clock = deps.clock;
  }

  /** The port in use; the standard one when the server has both. Null when it does not listen. */
  get port(): number | null {
    const ports = this.#servers.map((server) => server.port);
    return ports.find((port) => port === this.#options.port) ?? ports[0] ?? null;
  }

  /** Listens. Rejects with NETNS_UNAVAILABLE when no port is free. */
  async listen(): Promise<void> {
    const { name, port } = this.#options;
    const standard = await this.#bind(port);
    if (standard !== null) {
      await this.#take(standard);
      return;
    }
    await this.#take(await this.#bindAny());
    if (this.#closed) return;
    this.#log.warn({ server: name, wanted: port, port: this.port }, 'port.taken');
    this.#reclaim = this.#clock.every(PORT_RECLAIM_MS, () => this.#tryReclaim());
  }

  /** Leaves the standard port to another process and moves to a free one; requests in progress are answered. */
  async yield(): Promise<void> {
    this.#yielded = true;
    this.#reclaim?.cancel();
    const { port } = this.#options;
    const standard = this.#servers.filter((server) => server.port === port);
    const rest = this.#servers.filter((server) => server.port !== port);
    if (standard.length === 0 || port === 0) return;
    if (rest.length === 0) await this.#take(await this.#bindAny());
    this.#servers = this.#servers.filter((server) => !standard.includes(server));
    for (const server of standard) void server.drain();
  }

  /** Stops listening and ends open requests. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#reclaim?.cancel();
    const servers = this.#servers;
    this.#servers = [];
    await closeAll(servers);
  }

  /** Adds servers that listen, unless this one was closed meanwhile. */
  async #take(servers: readonly HttpServer[]): Promise<void> {
    if (this.#closed) await closeAll(servers);
    else this.#servers.push(...servers);
  }

  async #bindAny(): Promise<HttpServer[]> {
    for (let attempt = 0; attempt < EPHEMERAL_ATTEMPTS; attempt += 1) {
      const servers = await this.#bind(0);
      if (servers !== null) return servers;
    }
    const { name } = this.#options;
    throw new MeshError('NETNS_UNAVAILABLE', `the ${name} server found no free port`);
  }

  #tryReclaim(): void {
    this.#bind(this.#options.port).then(
      async (servers) => {
        if (servers === null) return;
        this.#reclaim?.cancel();
        if (this.#yielded) {
          await closeAll(servers);
          return;
        }
        // Clients that know the ephemeral port may still use it.
        await this.#take(servers);
        if (this.#closed) return;
        this.#log.info({ server: this.#options.name, port: this.#options.port }, 'port.reclaimed');
      },
      (error: unknown) =>
        this.#log.warn(
          { server: this.#options.name, error: errorText(error) },
          'port.reclaim-failed',
        ),
    );
  }

  /** Makes a server for each host on the same port; null when the port is taken on one of them. */
  async #bind(wanted: number): Promise<HttpServer[] | null> {
    const { name, handler, hosts } = this.#options;
    const servers: HttpServer[] = [];
    let port = wanted;
    for (const host of hosts) {
      const admit = (socket: Socket): void => this.#admit(socket);
      const server = new HttpServer(handler, { name, log: this.#log, admit });
      try {
        await server.listen({ kind: 'tcp', host, port });
        servers.push(server);
        port = server.port ?? port;
      } catch (error) {
        const code = error instanceof Error && 'code' in error ? error.code : null;
        const absent = code === 'EADDRNOTAVAIL' || code === 'EAFNOSUPPORT';
        if (absent && servers.length > 0) continue;
        await closeAll(servers);
        if (code === 'EADDRINUSE') return null;
        throw new MeshError(
          'NETNS_UNAVAILABLE',
          `the ${name} server cannot listen on ${host}: ${errorText(error)}`,
          { cause: error },
        );
      }
    }
    return servers;
  }

  /** Refuses a connection when nearly all descriptors are in use: the kernel gives out the lowest free number first. */
  #admit(socket: Socket): void {
    const fd = socketFd(socket);
    if (fd === null || fd < this.#spared) {
      this.#reportedExhausted = false;
      return;
    }
    socket.destroy();
    if (this.#reportedExhausted) return;
    this.#reportedExhausted = true;
    this.#log.warn({ server: this.#options.name, fd }, 'port.descriptors-exhausted');
  }
}

async function closeAll(servers: readonly HttpServer[]): Promise<void> {
  await Promise.all(servers.map((server) => server.close()));
}

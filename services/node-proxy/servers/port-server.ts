import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { sendText } from '../../../lib/actor/admin-routes.ts';
import type { AdminHandler } from '../../../lib/actor/admin-routes.ts';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { socketFd } from '../../../lib/net/socket.ts';
import {
  MAX_REQUEST_BODY_BYTES,
  MAX_SERVER_CONNECTIONS,
  PORT_RECLAIM_MS,
  SERVER_SPARED_DESCRIPTORS,
} from '../limits.ts';

/** Header limits of docs/spec/observability.md §4. */
const HEADER_TIMEOUT_MS = 2_000;
const HEADER_LIMIT_BYTES = 8_192;
/** For all of a request; no path takes a body worth more. */
const REQUEST_TIMEOUT_MS = 10_000;
/** How exactly the times above are kept; Node looks every 30 s only. */
const CHECK_INTERVAL_MS = 500;
/** Attempts to find an ephemeral port that is free on every host. */
const EPHEMERAL_ATTEMPTS = 5;

/** What a server listens on and does. */
export interface PortServerOptions {
  readonly name: string;
  /** The standard port; 0 = any. */
  readonly port: number;
  /** Addresses to listen on, the same port on each; those the machine lacks are skipped but for the first. */
  readonly hosts: readonly string[];
  readonly handler: AdminHandler;
}

/** What a server needs. */
export interface PortServerDeps {
  readonly log: Logger;
  readonly clock: Clock;
  /** How many the process may have. */
  readonly descriptors: number;
}

/** An HTTP server on a standard port, or on an ephemeral one while another process holds that. */
export class PortServer {
  readonly #options: PortServerOptions;
  readonly #log: Logger;
  readonly #clock: Clock;
  /** Where the last descriptors of the process begin. */
  readonly #spared: number;
  #servers: Server[] = [];
  #reclaim: Timer | null = null;
  #closed = false;
  #yielded = false;
  #saidExhausted = false;

  constructor(options: PortServerOptions, deps: PortServerDeps) {
    const { descriptors } = deps;
    this.#spared = descriptors - Math.min(SERVER_SPARED_DESCRIPTORS, Math.ceil(descriptors / 16));
    this.#options = options;
    this.#log = deps.log;
    this.#clock = deps.clock;
  }

  /** The port served now; the standard one where both are. Null when not listening. */
  get port(): number | null {
    const ports = this.#servers.map(portOf);
    return ports.find((port) => port === this.#options.port) ?? ports[0] ?? null;
  }

  /** Listens. Rejects with NETNS_UNAVAILABLE when no port can be had at all. */
  async listen(): Promise<void> {
    const { name, port } = this.#options;
    const standard = await this.#bind(port);
    if (standard !== null) {
      this.#servers = standard;
      return;
    }
    for (let attempt = 0; attempt < EPHEMERAL_ATTEMPTS; attempt += 1) {
      const servers = await this.#bind(0);
      if (servers === null) continue;
      this.#servers = servers;
      this.#log.warn({ server: name, wanted: port, port: this.port }, 'port.taken');
      this.#reclaim = this.#clock.every(PORT_RECLAIM_MS, () => this.#tryReclaim());
      return;
    }
    throw new MeshError('NETNS_UNAVAILABLE', `the ${name} server found no free port`);
  }

  /** Leaves the standard port to another process and goes on where there is room; requests under way are answered. */
  async yield(): Promise<void> {
    this.#yielded = true;
    this.#reclaim?.cancel();
    const { port } = this.#options;
    const [standard, rest] = [
      this.#servers.filter(isOn(port)),
      this.#servers.filter(isNotOn(port)),
    ];
    if (standard.length === 0 || port === 0) return;
    this.#servers = rest.length > 0 ? rest : ((await this.#bind(0)) ?? []);
    for (const server of standard) {
      server.close();
      server.closeIdleConnections();
    }
  }

  /** Stops listening and ends open requests. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#reclaim?.cancel();
    const servers = this.#servers;
    this.#servers = [];
    await Promise.all(servers.map(closeServer));
  }

  #tryReclaim(): void {
    this.#bind(this.#options.port).then(
      async (servers) => {
        if (servers === null) return;
        this.#reclaim?.cancel();
        if (this.#closed || this.#yielded) {
          await Promise.all(servers.map(closeServer));
          return;
        }
        // Those who were told the ephemeral port may still use it.
        this.#servers.push(...servers);
        this.#log.info({ server: this.#options.name, port: this.#options.port }, 'port.reclaimed');
      },
      (error: unknown) =>
        this.#log.warn({ server: this.#options.name, error: errorText(error) }, 'port.reclaim'),
    );
  }

  /** One server for each host on the same port; null when the port is taken on one of them. */
  async #bind(wanted: number): Promise<Server[] | null> {
    const servers: Server[] = [];
    let port = wanted;
    for (const host of this.#options.hosts) {
      const server = createServer({
        headersTimeout: HEADER_TIMEOUT_MS,
        requestTimeout: REQUEST_TIMEOUT_MS,
        connectionsCheckingInterval: CHECK_INTERVAL_MS,
        maxHeaderSize: HEADER_LIMIT_BYTES,
      });
      server.maxConnections = MAX_SERVER_CONNECTIONS;
      server.on('connection', (socket) => this.#admit(socket));
      server.on('request', (request, response) => void this.#handle(request, response));
      try {
        server.listen(port, host);
        await once(server, 'listening');
        servers.push(server);
        port = portOf(server) ?? port;
      } catch (error) {
        const code = error instanceof Error && 'code' in error ? error.code : null;
        const absent = code === 'EADDRNOTAVAIL' || code === 'EAFNOSUPPORT';
        if (absent && servers.length > 0) continue;
        await Promise.all(servers.map(closeServer));
        if (code === 'EADDRINUSE') return null;
        throw new MeshError(
          'NETNS_UNAVAILABLE',
          `the ${this.#options.name} server cannot listen on ${host}: ${errorText(error)}`,
          { cause: error },
        );
      }
    }
    return servers;
  }

  /** The kernel gives out the lowest number that is free, so a high one says that nearly all are in use. */
  #admit(socket: Socket): void {
    const fd = socketFd(socket);
    if (fd === null || fd < this.#spared) {
      this.#saidExhausted = false;
      return;
    }
    socket.destroy();
    if (this.#saidExhausted) return;
    this.#saidExhausted = true;
    this.#log.warn({ server: this.#options.name, fd }, 'port.descriptors-exhausted');
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!boundBody(request)) {
      response.setHeader('connection', 'close');
      sendText(response, 413, `no request here has a body above ${MAX_REQUEST_BODY_BYTES} bytes\n`);
      return;
    }
    try {
      // A request line may hold anything; only its path and query matter here.
      const url = new URL((request.url ?? '/').replace(/^\/+/, '/'), 'http://localhost');
      await this.#options.handler(request, response, url);
    } catch (error) {
      this.#log.warn({ server: this.#options.name, error: errorText(error) }, 'request.failed');
      if (response.headersSent) response.destroy();
      else sendText(response, 500, `${errorText(error)}\n`);
    }
  }
}

/** Throws away what a request carries, up to a limit; false when it announces more. */
function boundBody(request: IncomingMessage): boolean {
  if (Number(request.headers['content-length'] ?? 0) > MAX_REQUEST_BODY_BYTES) return false;
  let bytes = 0;
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_REQUEST_BODY_BYTES) request.destroy();
  });
  return true;
}

function portOf(server: Server): number | null {
  const address = server.address() as AddressInfo | null;
  return address?.port ?? null;
}

function isOn(port: number): (server: Server) => boolean {
  return (server) => portOf(server) === port;
}

function isNotOn(port: number): (server: Server) => boolean {
  return (server) => portOf(server) !== port;
}

async function closeServer(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, 'close');
  server.close();
  server.closeAllConnections();
  await closed;
}

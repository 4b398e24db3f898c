import { once } from 'node:events';
import { chmod, rm } from 'node:fs/promises';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { Server as SecureServer } from 'node:https';
import type { Socket } from 'node:net';
import { createServer } from './node-http.ts';
import type { Endpoint } from '../config/fields.ts';
import { assert } from '../errors/assert.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { servingParameters } from '../tls/parameters.ts';
import type { ServingCertificate, TlsPolicy } from '../tls/parameters.ts';
import { HttpRefusal, sendText } from './answers.ts';
import type { HttpHandler } from './routes.ts';

/** A client that sends its header slower than this is cut (docs/spec/observability.md §4). */
const HEADER_TIMEOUT_MS = 2_000;
/** Longest request header. */
const HEADER_LIMIT_BYTES = 8_192;
/** For a whole request whose body nobody reads. */
const REQUEST_TIMEOUT_MS = 10_000;
/** How exactly the times above are kept; Node's default is 30 s. Each check wakes an idle process, once for each server. */
const CHECK_INTERVAL_MS = 2_000;
/** Body of a request that is read and thrown away. */
export const MAX_DISCARDED_BODY_BYTES = 65_536;
/** Connections at once; scrapers and tools need a handful, watchers of the manifest API at most 256. */
const MAX_CONNECTIONS = 512;
/** Longer than any answer takes. */
const DRAIN_LIMIT_MS = 5_000;
/** Only the user of the process reaches its sockets, whatever the umask says. */
const SOCKET_MODE = 0o600;

const ORIGIN = 'http://localhost';

/** The settings of a server. */
export interface HttpServerOptions {
  /** Names the server in log lines. */
  readonly name: string;
  readonly log: Logger;
  /**
   * True where handlers read bodies themselves, within a bound and in the time that the client takes. Otherwise bodies are
   * thrown away, up to {@link MAX_DISCARDED_BODY_BYTES}.
   */
  readonly readsBodies?: boolean;
  /** Serves HTTPS with this certificate. A request must be complete in {@link REQUEST_TIMEOUT_MS} then. */
  readonly tls?: { readonly certificate: ServingCertificate; readonly policy: TlsPolicy };
  /** Looks at each new connection, and may destroy it. */
  readonly admit?: (socket: Socket) => void;
  /** Answers a failed request, before anything was sent. By default the answer is the error's text. */
  readonly refuse?: (response: ServerResponse, error: unknown) => void;
}

/** An HTTP server on one TCP address or unix socket, for operators, scrapers and the mesh's own tools. */
export class HttpServer {
  readonly #handler: HttpHandler;
  readonly #options: HttpServerOptions;
  readonly #server: Server | SecureServer;

  constructor(handler: HttpHandler, options: HttpServerOptions) {
    this.#handler = handler;
    this.#options = options;
    const { tls } = options;
    const limits = {
      headersTimeout: HEADER_TIMEOUT_MS,
      requestTimeout: options.readsBodies === true && tls === undefined ? 0 : REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: CHECK_INTERVAL_MS,
      maxHeaderSize: HEADER_LIMIT_BYTES,
    };
    const handle = (request: IncomingMessage, response: ServerResponse): void =>
      void this.#handle(request, response);
    this.#server =
      tls === undefined
        ? createServer(limits, handle)
        : createSecureServer(
            { ...limits, ...servingParameters(tls.certificate, tls.policy) },
            handle,
          );
    this.#server.maxConnections = MAX_CONNECTIONS;
    if (options.admit !== undefined) this.#server.on('connection', options.admit);
  }

  /** Shows this certificate to new connections. For a server with {@link HttpServerOptions.tls}. */
  rotate(certificate: ServingCertificate): void {
    const { tls } = this.#options;
    assert(tls !== undefined && 'setSecureContext' in this.#server, 'the server speaks TLS');
    this.#server.setSecureContext(servingParameters(certificate, tls.policy));
  }

  /** Listens; replaces a socket file that a killed process left. Rejects when the address cannot be taken. */
  async listen(endpoint: Endpoint): Promise<void> {
    if (endpoint.kind === 'unix') {
      await rm(endpoint.path, { force: true });
      this.#server.listen(endpoint.path);
    } else {
      this.#server.listen(endpoint.port, endpoint.host === '' ? undefined : endpoint.host);
    }
    await once(this.#server, 'listening');
    if (endpoint.kind === 'unix') await chmod(endpoint.path, SOCKET_MODE);
  }

  /** The TCP port listened on, null on a unix socket or when closed. */
  get port(): number | null {
    const address = this.#server.address();
    return address === null || typeof address === 'string' ? null : address.port;
  }

  /**
   * Stops listening and waits until requests in hand are answered, at most {@link DRAIN_LIMIT_MS}; connections that are left
   * are cut then. Idempotent.
   */
  async drain(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeIdleConnections();
    // Node stops its own time limits with the server, so that a client which says nothing would hold it for ever.
    const cut = setTimeout(() => this.#server.closeAllConnections(), DRAIN_LIMIT_MS);
    await closed;
    clearTimeout(cut);
  }

  /** Stops listening and cuts every connection. Idempotent. */
  async close(): Promise<void> {
    const drained = this.drain();
    this.#server.closeAllConnections();
    await drained;
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const url = URL.parse(request.url ?? '/', ORIGIN);
      // `//`, say, is a host without a name.
      if (url === null) throw new HttpRefusal(400, 'the request names no path');
      if (this.#options.readsBodies !== true) discardBody(request, response);
      await this.#handler(request, response, url);
    } catch (error) {
      const { name, log, refuse = refuseWithText } = this.#options;
      const level = error instanceof HttpRefusal ? 'debug' : 'warn';
      const { method, url } = request;
      log[level]({ server: name, method, url, error: errorText(error) }, 'http.request-failed');
      if (response.headersSent) response.destroy();
      else refuse(response, error);
    }
  }
}

/** Throws away what a request carries, and cuts it at the bound. Throws an HttpRefusal when it announces more. */
function discardBody(request: IncomingMessage, response: ServerResponse): void {
  if (Number(request.headers['content-length'] ?? 0) > MAX_DISCARDED_BODY_BYTES) {
    response.setHeader('connection', 'close');
    throw new HttpRefusal(
      413,
      `no request here has a body above ${MAX_DISCARDED_BODY_BYTES} bytes`,
    );
  }
  let bytes = 0;
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_DISCARDED_BODY_BYTES) request.destroy();
  });
}

function refuseWithText(response: ServerResponse, error: unknown): void {
  sendText(response, error instanceof HttpRefusal ? error.status : 500, `${errorText(error)}\n`);
}

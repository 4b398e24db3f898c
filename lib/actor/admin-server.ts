import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { chmod, rm } from 'node:fs/promises';
import { once } from 'node:events';
import type { Endpoint } from '../config/fields.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { requestUrl, sendText } from './admin-routes.ts';
import type { AdminHandler, AdminRoutes } from './admin-routes.ts';

/** A client that sends its header slower than this is cut (docs/spec/observability.md §4). */
const HEADER_TIMEOUT_MS = 2_000;
/** Longest request header. */
const HEADER_LIMIT_BYTES = 8_192;

/** The HTTP server through which a process is watched and steered. */
export class AdminServer {
  readonly #log: Logger;
  readonly #routes = new Map<string, Map<string, AdminHandler>>();
  readonly #server: Server;
  #endpoint: Endpoint | null = null;

  constructor(log: Logger) {
    this.#log = log;
    this.#server = createServer({
      headersTimeout: HEADER_TIMEOUT_MS,
      maxHeaderSize: HEADER_LIMIT_BYTES,
      keepAliveTimeout: 1_000,
    });
    this.#server.on('request', (request, response) => void this.#handle(request, response));
  }

  /** A view that registers routes below `prefix`. */
  routes(prefix: string): AdminRoutes {
    return {
      route: (method, path, handler) => {
        const methods = this.#routes.get(prefix + path) ?? new Map<string, AdminHandler>();
        methods.set(method, handler);
        this.#routes.set(prefix + path, methods);
      },
    };
  }

  /** Listens; a stale socket file is replaced. Rejects when the address cannot be taken. */
  async listen(endpoint: Endpoint): Promise<void> {
    if (endpoint.kind === 'unix') {
      await rm(endpoint.path, { force: true });
      this.#server.listen(endpoint.path);
    } else {
      this.#server.listen(endpoint.port, endpoint.host === '' ? undefined : endpoint.host);
    }
    await once(this.#server, 'listening');
    if (endpoint.kind === 'unix') await chmod(endpoint.path, 0o600);
    this.#endpoint = endpoint;
  }

  /** The TCP port listened on, null on a unix socket or when closed. */
  get port(): number | null {
    const address = this.#server.address();
    return address === null || typeof address === 'string' ? null : address.port;
  }

  /** Stops listening and ends open requests. Idempotent. */
  async close(): Promise<void> {
    if (this.#endpoint === null) return;
    this.#endpoint = null;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = requestUrl(request);
    if (url === null) {
      sendText(response, 400, 'the request names no path\n');
      return;
    }
    const methods = this.#routes.get(url.pathname);
    const handler = methods?.get(request.method ?? 'GET') ?? methods?.get('*');
    if (methods === undefined) {
      sendText(response, 404, `no such path: ${url.pathname}\n`);
      return;
    }
    if (handler === undefined) {
      sendText(response, 405, `use ${[...methods.keys()].join(' or ')}\n`);
      return;
    }
    try {
      await handler(request, response, url);
    } catch (error) {
      this.#log.warn({ path: url.pathname, error: errorText(error) }, 'admin.request-failed');
      if (response.headersSent) response.destroy();
      else sendText(response, 500, `${errorText(error)}\n`);
    }
  }
}

/** A client of the Kubernetes API. It holds no models: callers read what they need from plain JSON. */
import { Agent, request as openRequest } from 'node:https';
import type { RequestOptions } from 'node:https';
import type { IncomingMessage } from 'node:http';
import type { SecureContextOptions } from 'node:tls';
import { Backoff } from '../clock/backoff.ts';
import type { Clock } from '../clock/clock.ts';
import { MeshError, asMeshError, errorText } from '../errors/mesh-error.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import { DEFAULT_TLS_POLICY, tlsParameters } from '../tls/parameters.ts';
import type { TlsPolicy } from '../tls/parameters.ts';
import { Credentials } from './credentials.ts';
import type { CurrentCredentials } from './credentials.ts';
import type { KubernetesConnection } from './connection.ts';
import { parseJson } from './json-stream.ts';
import {
  KEEP_ALIVE_MS,
  MAX_ANSWER_BYTES,
  MAX_ATTEMPTS,
  MAX_RETRY_AFTER_MS,
  REQUEST_BACKOFF,
  REQUEST_TIMEOUT_MS,
} from './limits.ts';
import { isCode, statusError } from './status.ts';

/** A request. */
export interface KubernetesRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** See `resourcePath`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  /** `application/json` when left out. */
  readonly contentType?: string;
  readonly signal?: AbortSignal | undefined;
  /** Attempts; {@link MAX_ATTEMPTS} when left out. Only KUBERNETES_UNAVAILABLE is tried again. */
  readonly attempts?: number;
  /** An answer whose next bytes take longer is cut, in milliseconds; {@link REQUEST_TIMEOUT_MS} when left out, 0 never. */
  readonly silenceMs?: number;
}

/** How an object is applied. */
export interface ApplyOptions {
  /** The name that owns the written fields. */
  readonly fieldManager: string;
  /** Takes over fields of other managers. Without it such a field is a KUBERNETES_CONFLICT. */
  readonly force?: boolean;
  readonly signal?: AbortSignal;
}

/** Address, headers and TLS of a request that its caller sends. */
export interface UpgradeRequest {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly secure: SecureContextOptions & { readonly servername?: string };
}

/** Collaborators of a {@link KubernetesClient}. */
export interface KubernetesClientDeps {
  readonly clock: Clock;
  readonly metrics?: MetricRegistry;
  readonly tls?: TlsPolicy;
  /** Sent with each request, so that an operator finds the actor in the audit log. */
  readonly userAgent: string;
}

/**
 * Sends requests over kept HTTPS connections. Every call throws a MeshError as `statusError` tells; the network's failures are
 * KUBERNETES_UNAVAILABLE. The owner closes it.
 */
export class KubernetesClient {
  readonly #connection: KubernetesConnection;
  readonly #deps: KubernetesClientDeps;
  readonly #credentials: Credentials;
  readonly #agent: Agent;
  readonly #count: (method: string, outcome: string) => void;

  constructor(connection: KubernetesConnection, deps: KubernetesClientDeps) {
    this.#connection = connection;
    this.#deps = deps;
    this.#credentials = new Credentials(connection, deps.clock);
    this.#agent = new Agent({ keepAlive: true, keepAliveMsecs: KEEP_ALIVE_MS });
    const requests = deps.metrics?.counter(
      'weft_kubernetes_requests_total',
      'Requests to the API server',
      ['method', 'code'],
    );
    this.#count = (method, code) => requests?.inc({ method, code });
  }

  /** The namespace of the client's own account or context; null when unknown. */
  get namespace(): string | null {
    return this.#connection.namespace;
  }

  /** Reads an object. */
  get(path: string, options: Pick<KubernetesRequest, 'query' | 'signal'> = {}): Promise<unknown> {
    return this.request({ method: 'GET', path, ...options });
  }

  /** Creates an object; KUBERNETES_CONFLICT when it exists. `path` is that of the resource. */
  create(path: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
    return this.request({ method: 'POST', path, body, signal });
  }

  /** Replaces an object. A `metadata.resourceVersion` in the body that is not the current one is a KUBERNETES_CONFLICT. */
  replace(path: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
    return this.request({ method: 'PUT', path, body, signal });
  }

  /** Writes the given fields by server-side apply; creates the object when it does not exist. */
  apply(path: string, body: unknown, options: ApplyOptions): Promise<unknown> {
    const { fieldManager, force, signal } = options;
    return this.request({
      method: 'PATCH',
      path,
      query: { fieldManager, ...(force === true ? { force: 'true' } : {}) },
      contentType: 'application/apply-patch+yaml',
      body,
      signal,
    });
  }

  /** Deletes an object. */
  delete(path: string): Promise<unknown> {
    return this.request({ method: 'DELETE', path });
  }

  /** Sends a request and returns the answer's JSON, which is read as a whole. */
  async request(request: KubernetesRequest): Promise<unknown> {
    const backoff = new Backoff(REQUEST_BACKOFF);
    const attempts = request.attempts ?? MAX_ATTEMPTS;
    for (let attempt = 1; ; attempt += 1) {
      try {
        const response = await this.#send(request);
        return parseJson(await readAll(response, describe(request)), request.path);
      } catch (error) {
        const failure = this.#failure(error, request);
        if (attempt >= attempts || !isCode(failure, 'KUBERNETES_UNAVAILABLE')) throw failure;
        const asked = Number(failure.detail['retryAfterMs'] ?? 0);
        await this.#deps.clock.sleep(Math.max(backoff.next(), asked), request.signal);
      }
    }
  }

  /** Sends one GET and returns the body as a stream; the signal ends it. Nothing is tried again. */
  async stream(request: Omit<KubernetesRequest, 'method' | 'body'>): Promise<IncomingMessage> {
    const get: KubernetesRequest = { ...request, method: 'GET' };
    try {
      return await this.#send(get);
    } catch (error) {
      throw this.#failure(error, get);
    }
  }

  /** Returns what a caller needs to open a WebSocket itself. Throws KUBERNETES_REFUSED without readable credentials. */
  async upgrade(path: string, query: Readonly<Record<string, string>>): Promise<UpgradeRequest> {
    const { url, headers, secure } = this.#access(path, query, await this.#credentials.read());
    url.protocol = 'wss:';
    return { url, headers, secure };
  }

  /** Cuts all connections. */
  close(): void {
    this.#agent.destroy();
  }

  #failure(error: unknown, request: KubernetesRequest): MeshError {
    // The caller knows why it stopped the request.
    request.signal?.throwIfAborted();
    return asMeshError(error, 'KUBERNETES_UNAVAILABLE', describe(request));
  }

  async #send(request: KubernetesRequest): Promise<IncomingMessage> {
    const credentials = await this.#credentials.read();
    let response = await this.#attempt(request, credentials);
    if (response.statusCode === 401) {
      // The token was replaced, or the pod got a new one.
      this.#credentials.forget(credentials);
      response.resume();
      response = await this.#attempt(request, await this.#credentials.read());
    }
    cutWhenSilent(response, request.silenceMs ?? REQUEST_TIMEOUT_MS);
    const status = response.statusCode ?? 0;
    if (status >= 200 && status < 300) return response;
    const text = await readAll(response, describe(request));
    const failure = statusError(describe(request), status, looseJson(text));
    const seconds = Number(response.headers['retry-after']);
    if (!(seconds > 0)) throw failure;
    const retryAfterMs = Math.min(seconds * 1_000, MAX_RETRY_AFTER_MS);
    throw new MeshError(failure.code, failure.message, {
      detail: { ...failure.detail, retryAfterMs },
    });
  }

  async #attempt(
    request: KubernetesRequest,
    credentials: CurrentCredentials,
  ): Promise<IncomingMessage> {
    const options = this.#options(request, credentials);
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const outgoing = openRequest(options);
    const limit = this.#deps.clock.after(REQUEST_TIMEOUT_MS, () =>
      outgoing.destroy(new Error(`no answer within ${REQUEST_TIMEOUT_MS} ms`)),
    );
    outgoing.on('response', resolve).on('error', reject);
    outgoing.on('socket', (socket) => socket.setKeepAlive(true, KEEP_ALIVE_MS));
    outgoing.end(request.body === undefined ? undefined : JSON.stringify(request.body));
    try {
      const response = await promise;
      this.#count(request.method, String(response.statusCode ?? 0));
      return response;
    } catch (error) {
      this.#count(request.method, 'none');
      throw error;
    } finally {
      limit.cancel();
    }
  }

  #options(request: KubernetesRequest, credentials: CurrentCredentials): RequestOptions {
    const { url, headers, secure } = this.#access(request.path, request.query, credentials);
    return {
      agent: this.#agent,
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? 443 : Number(url.port),
      method: request.method,
      path: `${url.pathname}${url.search}`,
      headers: {
        accept: 'application/json',
        ...headers,
        ...(request.body === undefined
          ? {}
          : { 'content-type': request.contentType ?? 'application/json' }),
      },
      ...secure,
      signal: request.signal,
    };
  }

  #access(
    path: string,
    query: KubernetesRequest['query'],
    { token, ...material }: CurrentCredentials,
  ): UpgradeRequest {
    const { server, serverName } = this.#connection;
    const url = new URL(server);
    url.pathname = `${server.pathname.replace(/\/$/, '')}${path}`;
    url.search = new URLSearchParams(query).toString();
    return {
      url,
      headers: {
        'user-agent': this.#deps.userAgent,
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
      },
      secure: {
        ...material,
        ...tlsParameters(this.#deps.tls ?? DEFAULT_TLS_POLICY),
        ...(serverName === null ? {} : { servername: serverName }),
      },
    };
  }
}

function describe({ method, path }: KubernetesRequest): string {
  return `${method} ${path}`;
}

/** Ends an answer that stands still: an API server that hangs keeps its connections open. */
function cutWhenSilent(response: IncomingMessage, silenceMs: number): void {
  response.setTimeout(silenceMs, () =>
    response.destroy(new Error(`nothing came for ${silenceMs} ms`)),
  );
}

/** Reads an answer as a whole. `what` names the request. Throws KUBERNETES_INVALID above {@link MAX_ANSWER_BYTES}. */
export async function readAll(response: IncomingMessage, what: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) {
      const why = `${what}: the answer is above ${MAX_ANSWER_BYTES} bytes`;
      throw new MeshError('KUBERNETES_INVALID', why);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Returns the body of a failure, which proxies send as any text, as JSON where it is such. */
export function looseJson(text: Buffer): unknown {
  try {
    return JSON.parse(text.toString('utf8'));
  } catch (error) {
    return { kind: 'Status', message: text.toString('utf8').trim() || errorText(error) };
  }
}

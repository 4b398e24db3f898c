/** Serves the manifest API: HTTP and JSON on a unix socket. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type * as z from 'zod';
import { inSlices } from '../../../lib/async/time-slice.ts';
import type { ErrorCode } from '../../../lib/errors/codes.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { HttpRefusal, readBody, readJson, sendJson } from '../../../lib/http/answers.ts';
import { HttpServer } from '../../../lib/http/http-server.ts';
import { RouteTable } from '../../../lib/http/routes.ts';
import type { HttpHandler } from '../../../lib/http/routes.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_MANIFEST_BYTES, MAX_STATUS_BYTES, SLICE_MS } from '../limits.ts';
import { KINDS, isKind, namespaceOf } from '../manifests/kinds.ts';
import type { Kind, KubeObject } from '../manifests/kinds.ts';
import type { ManifestReader } from '../manifests/manifest-reader.ts';
import type { ManifestProblem } from '../manifests/parse.ts';
import { ManifestRejection } from '../manifests/rejection.ts';
import type { AdmissionContext } from '../store/admission.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { bindPod, podBinding, podStatusReport, setPodStatus } from '../store/pod-changes.ts';
import type { ReportResult } from '../store/pod-changes.ts';
import type { Draft } from '../store/state.ts';
import { applyManifests, deleteManifests } from '../store/transactions.ts';
import { writeInChunks } from './chunks.ts';
import type { ObjectWatchers } from './object-watchers.ts';

/** Dependencies of a {@link ManifestApiServer}. */
export interface ManifestApiServerDeps {
  readonly store: ObjectStore;
  readonly watchers: ObjectWatchers;
  readonly reader: ManifestReader;
  readonly log: Logger;
  readonly context: () => AdmissionContext;
  /** Counts a request by its outcome. */
  readonly count: (operation: string, outcome: 'done' | 'refused' | 'failed') => void;
}

/**
 * The rights of a socket's callers: `admin` allows everything, `pods` only the watch of pods. Actors of one mesh run as one
 * user, so the socket that an actor can reach decides its rights.
 */
export type SocketRole = 'admin' | 'pods';

/** Serves one socket. */
export class ManifestApiServer {
  readonly #path: string;
  readonly #role: SocketRole;
  readonly #deps: ManifestApiServerDeps;
  readonly #routes = new RouteTable();
  readonly #server: HttpServer;

  constructor(path: string, role: SocketRole, deps: ManifestApiServerDeps) {
    this.#path = path;
    this.#role = role;
    this.#deps = deps;
    const { log } = deps;
    // The body of a large batch has no time limit: only the mesh's own user reaches the socket.
    const options = { name: `manifest-api.${role}`, log, readsBodies: true, refuse };
    this.#server = new HttpServer(this.#handle, options);
    const routes = this.#routes;
    routes.route('POST', '/apply', async (request, response) =>
      sendJson(response, 200, { applied: await this.#apply(request) }),
    );
    routes.route('POST', '/delete', async (request, response) =>
      sendJson(response, 200, await this.#delete(request)),
    );
    routes.route('GET', '/objects', (_request, response, url) => this.#list(url, response));
    routes.route('GET', '/watch', (_request, response, url) =>
      deps.watchers.add(kindOf(url), response),
    );
    routes.route('PUT', '/pods/*/*/status', (request, response, url) =>
      this.#putPod(request, response, url, podStatusReport, setPodStatus),
    );
    routes.route('PUT', '/pods/*/*/binding', (request, response, url) =>
      this.#putPod(request, response, url, podBinding, bindPod),
    );
  }

  /** Listens. Replaces a socket that a killed process left. */
  async listen(): Promise<void> {
    await mkdir(dirname(this.#path), { recursive: true });
    await this.#server.listen({ kind: 'unix', path: this.#path });
  }

  /** Stops listening, ends the watches, and waits for the running requests. */
  async close(): Promise<void> {
    this.#deps.watchers.close();
    await this.#server.drain();
  }

  /** Checks the role of the socket before anything else, and counts the outcome. */
  readonly #handle: HttpHandler = async (request, response, url) => {
    const { count, log } = this.#deps;
    const operation = `${request.method} /${url.pathname.split('/')[1] ?? ''}`;
    const known = OPERATIONS.has(operation) ? operation : 'other';
    try {
      if (this.#role === 'pods' && !isPodWatch(request, url)) {
        throw new HttpRefusal(403, 'this socket has the role pods: only GET /watch?kind=Pod');
      }
      await this.#routes.handle(request, response, url);
      count(known, 'done');
    } catch (error) {
      const refused = !response.headersSent && statusOf(error) < 500;
      count(known, refused ? 'refused' : 'failed');
      if (refused) log.warn({ operation, error: errorText(error) }, 'manifest-api.refused');
      throw error;
    }
  };

  async #apply(request: IncomingMessage): Promise<unknown> {
    const { reader, store, context } = this.#deps;
    const manifests = await reader.toApply(await readBody(request, MAX_MANIFEST_BYTES));
    return store.transact((draft) =>
      inSlices(applyManifests(draft, manifests, null, context()), SLICE_MS),
    );
  }

  async #delete(request: IncomingMessage): Promise<unknown> {
    const { reader, store, context } = this.#deps;
    const references = await reader.toDelete(await readBody(request, MAX_MANIFEST_BYTES));
    return store.transact((draft) =>
      inSlices(deleteManifests(draft, references, context()), SLICE_MS),
    );
  }

  async #list(url: URL, response: ServerResponse): Promise<void> {
    const all = [...this.#deps.store.state.ofKind(kindOf(url))];
    const namespace = url.searchParams.get('namespace') ?? '';
    const items =
      namespace === '' ? all : all.filter((object) => namespaceOf(object) === namespace);
    response.writeHead(200, { 'content-type': 'application/json' });
    await writeInChunks(response, listText(items));
    response.end();
  }

  /** Takes a report about one pod: its path names the pod, its body fits `schema`. */
  async #putPod<T>(
    request: IncomingMessage,
    response: ServerResponse,
    url: URL,
    schema: z.ZodType<T>,
    change: (draft: Draft, namespace: string, name: string, body: T, now: string) => ReportResult,
  ): Promise<void> {
    const [, , namespace = '', name = '', part = ''] = url.pathname
      .split('/')
      .map(decodeURIComponent);
    const parsed = schema.safeParse(await readJson(request, MAX_STATUS_BYTES));
    if (!parsed.success) {
      throw new ManifestRejection(reportProblems(`${part} of ${namespace}/${name}`, parsed.error));
    }
    const { now } = this.#deps.context();
    const result = await this.#deps.store.transact((draft) =>
      change(draft, namespace, name, parsed.data, now),
    );
    if (result === 'gone') throw new HttpRefusal(404, `there is no pod ${namespace}/${name}`);
    if (result === 'other') {
      throw new HttpRefusal(409, `pod ${namespace}/${name} has another uid`);
    }
    sendJson(response, 200, { result });
  }
}

const OPERATIONS = new Set([
  'POST /apply',
  'POST /delete',
  'GET /objects',
  'GET /watch',
  'PUT /pods',
]);

function* listText(items: readonly KubeObject[]): Iterable<string> {
  yield '{"items":[';
  for (const [index, item] of items.entries()) {
    yield `${index === 0 ? '' : ','}${JSON.stringify(item)}`;
  }
  yield ']}';
}

function isPodWatch(request: IncomingMessage, url: URL): boolean {
  return request.method === 'GET' && url.pathname === '/watch' && kindOf(url) === 'Pod';
}

function kindOf(url: URL): Kind {
  const kind = url.searchParams.get('kind');
  if (isKind(kind)) return kind;
  throw new HttpRefusal(
    400,
    `kind must be one of ${KINDS.join(', ')}, got ${JSON.stringify(kind)}`,
  );
}

function reportProblems(source: string, error: z.ZodError): ManifestProblem[] {
  return error.issues.map((issue) => ({
    source,
    index: 0,
    path: issue.path.join('.'),
    reason: issue.message,
  }));
}

const STATUS_OF: Readonly<Partial<Record<ErrorCode, number>>> = {
  MANIFEST_INVALID: 400,
  STATE_CONFLICT: 409,
  STATE_UNAVAILABLE: 503,
};

function statusOf(error: unknown): number {
  if (error instanceof ManifestRejection) return 422;
  if (error instanceof HttpRefusal) return error.status;
  return error instanceof MeshError ? (STATUS_OF[error.code] ?? 500) : 500;
}

function refuse(response: ServerResponse, error: unknown): void {
  const errors =
    error instanceof ManifestRejection
      ? error.problems
      : [{ source: '', index: 0, path: '', reason: errorText(error) }];
  sendJson(response, statusOf(error), { errors });
}

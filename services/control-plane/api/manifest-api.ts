/** The manifest API: HTTP and JSON on a unix socket. */
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { chmod, mkdir, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { z } from 'zod';
import { requestUrl, sendJson } from '../../../lib/actor/admin-routes.ts';
import { inSlices } from '../../../lib/async/time-slice.ts';
import type { ErrorCode } from '../../../lib/errors/codes.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_MANIFEST_BYTES, MAX_STATUS_BYTES, SLICE_MS } from '../limits.ts';
import { KINDS, isKind, namespaceOf } from '../manifests/kinds.ts';
import type { Kind, KubeObject } from '../manifests/kinds.ts';
import type { ManifestReader } from '../manifests/manifest-reader.ts';
import type { ManifestProblem } from '../manifests/parse.ts';
import { ManifestRejection } from '../manifests/rejection.ts';
import type { AdmissionContext } from '../store/admission.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { podStatusReport, setPodStatus } from '../store/pod-changes.ts';
import { applyManifests, deleteManifests } from '../store/transactions.ts';
import type { FixedNamespaces } from '../store/transactions.ts';
import { writeInChunks } from './chunks.ts';
import { HttpRefusal, readBody, readJson } from './http-body.ts';
import type { ObjectWatchers } from './object-watchers.ts';

/** What the API needs. */
export interface ManifestApiDeps {
  readonly store: ObjectStore;
  readonly watchers: ObjectWatchers;
  readonly reader: ManifestReader;
  readonly log: Logger;
  readonly context: () => AdmissionContext & FixedNamespaces;
  /** Counts a request by its outcome. */
  readonly count: (operation: string, outcome: 'done' | 'refused' | 'failed') => void;
}

/**
 * What callers of a socket may do: everything, or hear of the pods. Actors of one mesh have the same user, so the socket that an
 * actor can reach is its role.
 */
export type SocketRole = 'admin' | 'pods';

/** Only the mesh's own user reaches the socket. */
const SOCKET_MODE = 0o600;

/** Serves one socket. */
export class ManifestApi {
  readonly #path: string;
  readonly #role: SocketRole;
  readonly #deps: ManifestApiDeps;
  readonly #server: Server;

  constructor(path: string, role: SocketRole, deps: ManifestApiDeps) {
    this.#path = path;
    this.#role = role;
    this.#deps = deps;
    this.#server = createServer((request, response) => void this.#handle(request, response));
    // A batch takes as long as it takes to send; the socket is the mesh's own.
    this.#server.requestTimeout = 0;
  }

  /** Listens; a socket left by a killed process is replaced. */
  async listen(): Promise<void> {
    await mkdir(dirname(this.#path), { recursive: true });
    await rm(this.#path, { force: true });
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(this.#path, () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
    await chmod(this.#path, SOCKET_MODE);
  }

  /** Stops listening, ends watches, and waits for requests in hand. */
  async close(): Promise<void> {
    this.#deps.watchers.close();
    if (!this.#server.listening) return;
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeIdleConnections();
    });
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = requestUrl(request);
    const operation = `${request.method} /${url?.pathname.split('/')[1] ?? ''}`;
    const known = OPERATIONS.has(operation) ? operation : 'other';
    try {
      if (url === null) throw new HttpRefusal(400, 'the request names no path');
      await this.#route(request, response, url);
      this.#deps.count(known, 'done');
    } catch (error) {
      this.#deps.count(known, refuse(response, error) ? 'refused' : 'failed');
      this.#deps.log.warn({ operation, error: errorText(error) }, 'manifest-api.refused');
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
    const { pathname } = url;
    if (this.#role === 'pods' && !isPodWatch(request, url)) {
      throw new HttpRefusal(403, 'this socket has the role pods: GET /watch?kind=Pod alone');
    }
    const pod = /^\/pods\/([^/]+)\/([^/]+)\/status$/.exec(pathname);
    if (request.method === 'POST' && pathname === '/apply') {
      sendJson(response, 200, { applied: await this.#apply(request) });
    } else if (request.method === 'POST' && pathname === '/delete') {
      sendJson(response, 200, await this.#delete(request));
    } else if (request.method === 'GET' && pathname === '/objects') {
      const namespace = url.searchParams.get('namespace') ?? '';
      await this.#list(kindOf(url), namespace, response);
    } else if (request.method === 'GET' && pathname === '/watch') {
      this.#deps.watchers.add(kindOf(url), response);
    } else if (request.method === 'PUT' && pod !== null) {
      await this.#putStatus(
        decodeURIComponent(pod[1] ?? ''),
        decodeURIComponent(pod[2] ?? ''),
        request,
        response,
      );
    } else {
      throw new HttpRefusal(404, `there is no ${request.method} ${pathname}`);
    }
  }

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

  async #list(kind: Kind, namespace: string, response: ServerResponse): Promise<void> {
    const all = [...this.#deps.store.state.ofKind(kind)];
    const items =
      namespace === '' ? all : all.filter((object) => namespaceOf(object) === namespace);
    response.writeHead(200, { 'content-type': 'application/json' });
    await writeInChunks(response, listText(items));
    response.end();
  }

  async #putStatus(
    namespace: string,
    name: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const parsed = podStatusReport.safeParse(await readJson(request, MAX_STATUS_BYTES));
    if (!parsed.success) throw new ManifestRejection(statusProblems(namespace, name, parsed.error));
    const { now } = this.#deps.context();
    const result = await this.#deps.store.transact((draft) =>
      setPodStatus(draft, namespace, name, parsed.data, now),
    );
    if (result === 'gone') throw new HttpRefusal(404, `there is no pod ${namespace}/${name}`);
    if (result === 'other') {
      throw new HttpRefusal(409, `pod ${namespace}/${name} has another uid by now`);
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

function statusProblems(namespace: string, name: string, error: z.ZodError): ManifestProblem[] {
  return error.issues.map((issue) => ({
    source: `status of ${namespace}/${name}`,
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

/** Answers a failed request; true when the fault is the caller's. */
function refuse(response: ServerResponse, error: unknown): boolean {
  if (response.headersSent) {
    response.destroy();
    return false;
  }
  if (error instanceof ManifestRejection) {
    sendJson(response, 422, { errors: error.problems });
    return true;
  }
  const code =
    error instanceof HttpRefusal
      ? error.status
      : error instanceof MeshError
        ? (STATUS_OF[error.code] ?? 500)
        : 500;
  sendJson(response, code, {
    errors: [{ source: '', index: 0, path: '', reason: errorText(error) }],
  });
  return code < 500;
}

/** Admin endpoints of the control plane, below `/control-plane`, and Istio's debug endpoints at the metrics address. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { HttpRefusal } from '../../lib/http/answers.ts';
import type { HttpHandler, Routes } from '../../lib/http/routes.ts';
import type { TokenSubject } from '../../lib/identity/token.ts';
import { writeInChunks } from './api/chunks.ts';
import {
  addressesPage,
  ambientPage,
  conditionsPage,
  configPage,
  connectionsPage,
  nacksPage,
  policiesPage,
  streamsPage,
  syncPage,
} from './debug-pages.ts';
import type { PageSources } from './debug-pages.ts';

/** Decides which callers on other machines may read the debug endpoints. */
export interface DebugReaders {
  /** Throws a MeshError for a token that is not valid. */
  authenticate(token: string): Promise<TokenSubject>;
  readonly rootNamespace: string;
}

/** Registers the routes of the admin server, whose callers are trusted. */
export function adminRoutes(routes: Routes, sources: PageSources): void {
  const pages = {
    '/addresses': addressesPage,
    '/policies': policiesPage,
    '/streams': streamsPage,
    '/nacks': nacksPage,
    '/conditions': conditionsPage,
  };
  for (const [path, page] of Object.entries(pages)) {
    routes.route('GET', path, (_request, response) => send(response, page(sources)));
  }
}

/**
 * Registers `/debug/{ambientz,syncz,connections,config_dump}`. They answer callers on this machine, and callers with a
 * token of an account of the root namespace.
 */
export function debugRoutes(routes: Routes, sources: PageSources, readers: DebugReaders): void {
  const pages = {
    '/ambientz': () => ambientPage(sources),
    '/syncz': () => syncPage(sources),
    '/connections': () => connectionsPage(sources),
    '/config_dump': (url: URL) => configPage(sources, proxyOf(url)),
  };
  for (const [path, page] of Object.entries(pages)) {
    const handler: HttpHandler = async (request, response, url) => {
      await authorize(request, readers);
      await send(response, page(url));
    };
    routes.route('GET', path, handler);
  }
}

function proxyOf(url: URL): string {
  const proxy = url.searchParams.get('proxyID');
  if (proxy === null || proxy === '') {
    throw new HttpRefusal(400, 'proxyID: must name a proxy or a part of its node id');
  }
  return proxy;
}

/** Throws an HttpRefusal unless the caller may read. */
async function authorize(request: IncomingMessage, readers: DebugReaders): Promise<void> {
  if (isLocal(request.socket.remoteAddress)) return;
  const token = /^Bearer (\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
  if (token === undefined) {
    throw new HttpRefusal(401, 'a bearer token is required from another machine');
  }
  let subject: TokenSubject;
  try {
    subject = await readers.authenticate(token);
  } catch (error) {
    if (!(error instanceof MeshError)) throw error;
    throw new HttpRefusal(error.code === 'STATE_UNAVAILABLE' ? 503 : 401, errorText(error));
  }
  if (subject.namespace === readers.rootNamespace) return;
  throw new HttpRefusal(403, `accounts of namespace ${subject.namespace} may not read this`);
}

/** True for loopback and for unix sockets, which have no address. */
function isLocal(address: string | undefined): boolean {
  if (address === undefined || address === '::1') return true;
  return address.replace(/^::ffff:/, '').startsWith('127.');
}

async function send(response: ServerResponse, page: Iterable<string>): Promise<void> {
  response.writeHead(200, { 'content-type': 'application/json' });
  await writeInChunks(response, page);
  response.end();
}

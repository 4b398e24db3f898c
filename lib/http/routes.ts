import type { IncomingMessage, ServerResponse } from 'node:http';
import { HttpRefusal } from './answers.ts';

/** Answers a request. The server answers what it throws: an HttpRefusal with its status, anything else with 500. */
export type HttpHandler = (
  request: IncomingMessage,
  response: ServerResponse,
  url: URL,
) => void | Promise<void>;

/** Registers handlers. */
export interface Routes {
  /** Handles `method` (or any, with `*`) on `path`; a `*` in the path stands for one segment. */
  route(method: 'GET' | 'POST' | 'PUT' | 'DELETE' | '*', path: string, handler: HttpHandler): void;
}

/** Handlers by path and method. */
export class RouteTable implements Routes {
  readonly #paths = new Map<string, Map<string, HttpHandler>>();

  route(method: string, path: string, handler: HttpHandler): void {
    const methods = this.#paths.get(path) ?? new Map<string, HttpHandler>();
    methods.set(method, handler);
    this.#paths.set(path, methods);
  }

  /** Returns a view that registers routes below `prefix`. */
  below(prefix: string): Routes {
    return { route: (method, path, handler) => this.route(method, prefix + path, handler) };
  }

  /** Calls the handler of the request. Throws an HttpRefusal with 404 or 405 when there is none. */
  readonly handle: HttpHandler = (request, response, url) => {
    const methods = this.#methods(url.pathname);
    if (methods === undefined) throw new HttpRefusal(404, `no such path: ${url.pathname}`);
    const handler = methods.get(request.method ?? 'GET') ?? methods.get('*');
    if (handler === undefined) {
      throw new HttpRefusal(405, `use ${[...methods.keys()].join(' or ')}`);
    }
    return handler(request, response, url);
  };

  #methods(path: string): Map<string, HttpHandler> | undefined {
    const known = this.#paths.get(path);
    if (known !== undefined) return known;
    const segments = path.split('/');
    const pattern = [...this.#paths.keys()].find((candidate) => {
      const parts = candidate.split('/');
      return (
        parts.length === segments.length &&
        parts.every((part, index) => part === segments[index] || part === '*')
      );
    });
    return pattern === undefined ? undefined : this.#paths.get(pattern);
  }
}

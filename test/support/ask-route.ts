/** Asks a route of an actor under test, through a real HTTP server. */
import { HttpServer } from '../../lib/http/http-server.ts';
import type { HttpHandler } from '../../lib/http/routes.ts';
import { keptLog } from './actor-context.ts';

/** The answer of a route. */
export interface RouteAnswer {
  readonly status: number;
  readonly text: string;
}

/** Asks `METHOD path` of the routes; `query` begins with a question mark. */
export async function askRoute(
  routes: ReadonlyMap<string, HttpHandler>,
  name: string,
  options: { readonly query?: string; readonly token?: string; readonly from?: string } = {},
): Promise<RouteAnswer> {
  const [method = '', path = ''] = name.split(' ');
  const handler = routes.get(name);
  if (handler === undefined) throw new Error(`no route ${name}`);
  const server = new HttpServer(
    (request, response, url) => {
      const { from } = options;
      // The address of a caller on another machine.
      if (from !== undefined) {
        Object.defineProperty(request.socket, 'remoteAddress', { value: from });
      }
      return handler(request, response, url);
    },
    { name: 'test', log: keptLog('test').log },
  );
  await server.listen({ kind: 'tcp', host: '127.0.0.1', port: 0 });
  try {
    const { token, query = '' } = options;
    const response = await fetch(`http://127.0.0.1:${server.port}${path}${query}`, {
      method,
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
    });
    return { status: response.status, text: await response.text() };
  } finally {
    await server.close();
  }
}

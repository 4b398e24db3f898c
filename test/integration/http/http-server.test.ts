/** Tests the HTTP server that actors, the control plane, proxies and the supervisor share. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { once } from 'node:events';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { request } from '../../../lib/http/node-http.ts';
import { HttpRefusal, readBody, sendJson, sendText } from '../../../lib/http/answers.ts';
import { HttpServer, MAX_DISCARDED_BODY_BYTES } from '../../../lib/http/http-server.ts';
import type { HttpServerOptions } from '../../../lib/http/http-server.ts';
import { RouteTable } from '../../../lib/http/routes.ts';
import { keptLog } from '../../support/actor-context.ts';
import { until } from '../../support/until.ts';

async function serve(t: ExecutionContext, options: Partial<HttpServerOptions> = {}) {
  const { log, lines } = keptLog('test');
  const routes = new RouteTable();
  const server = new HttpServer(routes.handle, { name: 'test', log, ...options });
  t.teardown(() => server.close());
  await server.listen({ kind: 'tcp', host: '127.0.0.1', port: 0 });
  const port = server.port ?? 0;
  const ask = async (method: string, path: string, body?: string) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      ...(body === undefined ? {} : { body }),
    });
    return [response.status, await response.text()] as const;
  };
  return { server, routes, lines, port, ask };
}

async function dial(t: ExecutionContext, port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

test('a request is handled by its method and path', async (t) => {
  const { routes, ask } = await serve(t);
  routes.route('GET', '/', (_request, response) => sendText(response, 200, 'root'));
  routes
    .below('/actor')
    .route('*', '/any', ({ method }, response) => sendJson(response, 200, { method }));
  routes.route('PUT', '/pods/*/*/status', (_request, response, { pathname, searchParams }) =>
    sendText(response, 200, `${pathname} ${searchParams.get('x')}`),
  );
  t.deepEqual(await ask('GET', '/'), [200, 'root']);
  t.deepEqual(await ask('DELETE', '/actor/any'), [200, '{"method":"DELETE"}\n']);
  t.deepEqual(await ask('PUT', '/pods/a/b/status?x=1'), [200, '/pods/a/b/status 1']);
  t.deepEqual(await ask('GET', '/pods/a/b/status'), [405, 'use PUT\n']);
  t.deepEqual(await ask('PUT', '/pods/a/status'), [404, 'no such path: /pods/a/status\n']);
  t.is((await ask('GET', '//'))[0], 400);
});

test('what a handler throws is answered and logged, and cuts an answer that was begun', async (t) => {
  const { routes, ask, lines } = await serve(t);
  routes.route('GET', '/refused', () => {
    throw new HttpRefusal(409, 'not now');
  });
  routes.route('GET', '/broken', () => Promise.reject(new Error('it broke')));
  routes.route('GET', '/begun', (_request, response) => {
    response.writeHead(200);
    response.write('x');
    throw new Error('broke later');
  });
  t.deepEqual(await ask('GET', '/refused'), [409, 'not now\n']);
  t.deepEqual(await ask('GET', '/broken'), [500, 'it broke\n']);
  await t.throwsAsync(ask('GET', '/begun'));
  t.deepEqual(
    lines.map(({ message, level, server, url, error }) => [message, level, server, url, error]),
    [
      ['http.request-failed', 'debug', 'test', '/refused', 'not now'],
      ['http.request-failed', 'warn', 'test', '/broken', 'it broke'],
      ['http.request-failed', 'warn', 'test', '/begun', 'broke later'],
    ],
  );
});

test('a server may answer refusals in a form of its own, paths that are none included', async (t) => {
  const refuse: HttpServerOptions['refuse'] = (response, error) =>
    sendJson(response, error instanceof HttpRefusal ? error.status : 500, { mine: true });
  const { ask } = await serve(t, { refuse });
  t.deepEqual(await ask('GET', '/nothing'), [404, '{"mine":true}\n']);
});

test('bodies are thrown away up to a bound, and read up to the bound of the handler', async (t) => {
  const discarding = await serve(t);
  discarding.routes.route('POST', '/', (_request, response) => sendText(response, 200, 'taken'));
  t.is((await discarding.ask('POST', '/', 'x'.repeat(MAX_DISCARDED_BODY_BYTES)))[0], 200);
  const announced = await dial(t, discarding.port);
  let answer = '';
  announced.on('data', (chunk: Buffer) => (answer += chunk.toString()));
  announced.write(
    `POST / HTTP/1.1\r\nhost: x\r\ncontent-length: ${MAX_DISCARDED_BODY_BYTES + 1}\r\n\r\n`,
  );
  await until(() => announced.destroyed, { what: 'the refusal' });
  t.regex(answer, /^HTTP\/1\.1 413 /);

  const reading = await serve(t, { readsBodies: true });
  reading.routes.route('POST', '/', async (call, response) =>
    sendText(response, 200, String((await readBody(call, 100_000)).length)),
  );
  t.deepEqual(await reading.ask('POST', '/', 'x'.repeat(100_000)), [200, '100000']);
  const tooLong = await reading.ask('POST', '/', 'x'.repeat(100_001));
  t.deepEqual(tooLong, [413, 'the body is larger than 100000 bytes\n']);
});

test('a unix socket replaces a stale file, and only its user reaches it', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'weft-http-'));
  t.teardown(() => rm(directory, { recursive: true }));
  const path = join(directory, 'socket');
  await writeFile(path, '');
  const routes = new RouteTable();
  routes.route('GET', '/', (_request, response) => sendText(response, 200, 'there'));
  const server = new HttpServer(routes.handle, { name: 'test', log: keptLog('test').log });
  t.teardown(() => server.close());
  await server.listen({ kind: 'unix', path });
  t.is((await stat(path)).mode & 0o777, 0o600);
  t.is(server.port, null);
  const [response] = (await once(request({ socketPath: path }).end(), 'response')) as [
    IncomingMessage,
  ];
  t.is(response.resume().statusCode, 200);
});

test('a drain answers what is in hand and ends idle connections; a close cuts all', async (t) => {
  const { server, routes, port } = await serve(t);
  const asked: (() => void)[] = [];
  routes.route('GET', '/slow', (_request, response) => {
    asked.push(() => sendText(response, 200, 'late'));
  });
  const idle = await dial(t, port);
  const busy = await dial(t, port);
  let answer = '';
  busy.on('data', (chunk: Buffer) => (answer += chunk.toString()));
  busy.write('GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  await until(() => asked.length === 1, { what: 'the request' });
  const drained = server.drain();
  await once(idle.resume(), 'close');
  t.false(busy.destroyed);
  asked[0]?.();
  await drained;
  await until(() => answer.endsWith('late'), { what: 'the answer' });

  await server.listen({ kind: 'tcp', host: '127.0.0.1', port: 0 });
  const cut = await dial(t, server.port ?? 0);
  cut.resume().write('GET /slow HTTP/1.1\r\nhost: x\r\n\r\n');
  await until(() => asked.length === 2, { what: 'the second request' });
  await server.close();
  await until(() => cut.destroyed, { what: 'the cut' });
  await t.notThrowsAsync(server.close());
});

test('an address that is taken is a rejection, after which the server may listen again', async (t) => {
  const { port } = await serve(t);
  const server = new HttpServer(new RouteTable().handle, { name: 'test', log: keptLog('t').log });
  t.teardown(() => server.close());
  await t.throwsAsync(server.listen({ kind: 'tcp', host: '127.0.0.1', port }), {
    code: 'EADDRINUSE',
  });
  await server.listen({ kind: 'tcp', host: '127.0.0.1', port: 0 });
  t.not(server.port, null);
});

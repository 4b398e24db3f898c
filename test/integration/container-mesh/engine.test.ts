/** Tests the engine's client against an engine that refuses, sends odd answers, or is absent. */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { createServer } from '../../../lib/http/node-http.ts';
import { Engine } from '../../../services/container-mesh/engine.ts';
import { makeScratch } from '../../support/leftovers.ts';

interface Asked {
  readonly line: string;
  readonly body: string;
}

/** Starts an engine that gives the test's answers, and records its requests. */
async function engineThat(
  t: ExecutionContext,
  answer: (response: ServerResponse, line: string) => void,
): Promise<{ readonly engine: Engine; readonly socket: string; readonly asked: Asked[] }> {
  const socket = join(await makeScratch('engine'), 'docker.sock');
  const asked: Asked[] = [];
  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let body = '';
    for await (const chunk of request) body += String(chunk);
    const line = `${request.method} ${request.url}`;
    asked.push({ line, body });
    answer(response, line);
  };
  const server = createServer((request, response) => {
    serve(request, response).catch((error: unknown) => t.fail(String(error)));
  }).listen(socket);
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { engine: new Engine(socket), socket, asked };
}

function refuse(status: number): (response: ServerResponse) => void {
  return (response) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(status === 304 ? undefined : JSON.stringify({ message: 'no room' }));
  };
}

test("a refusal carries the engine's words and where it was asked", async (t) => {
  const { engine, socket } = await engineThat(t, refuse(500));
  const error = await t.throwsAsync(engine.list());
  t.like(error, { code: 'STATE_UNAVAILABLE' });
  t.true(error?.message.includes('no room'));
  t.true(error?.message.includes(socket));
});

test('an engine that is away is named', async (t) => {
  const socket = join(await makeScratch('engine'), 'none.sock');
  const error = await t.throwsAsync(new Engine(socket).inspect('a'));
  t.like(error, { code: 'STATE_UNAVAILABLE' });
  t.true(error?.message.includes(socket));
});

test('what is so already, or gone, is no refusal; anything else is', async (t) => {
  const same = await engineThat(t, refuse(304));
  await same.engine.start('a');
  await same.engine.stop('a');
  for (const status of [404, 409]) {
    const { engine } = await engineThat(t, refuse(status));
    await engine.remove('a');
    await t.throwsAsync(engine.start('a'), { message: /no room/ });
  }
  const gone = await engineThat(t, refuse(404));
  t.deepEqual(await gone.engine.imageConfig('sha256:1'), {});
  await t.throwsAsync(gone.engine.inspect('a'), { message: /no room/ });
});

test('a container is made by its description alone, under the name in the query', async (t) => {
  const { engine, asked } = await engineThat(t, (response) => {
    response.writeHead(201, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ Id: 'new' }));
  });
  const body = { Image: 'weft', Env: ['A=1'], HostConfig: { ReadonlyRootfs: true } };
  t.is(await engine.create('mesh-ca-1', body), 'new');
  t.is(asked[0]?.line, 'POST /containers/create?name=mesh-ca-1');
  t.deepEqual(JSON.parse(asked[0]?.body ?? ''), body);
});

test('commands of health checks are no changes; the end of the stream is the end', async (t) => {
  const { engine, asked } = await engineThat(t, (response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    for (const Action of ['start', 'exec_create: true', 'exec_die', 'die']) {
      response.write(`${JSON.stringify({ Type: 'container', Action })}\n`);
    }
    response.end();
  });
  let changes = 0;
  for await (const _ of engine.changes(new AbortController().signal)) changes += 1;
  t.is(changes, 2);
  t.true(decodeURIComponent(asked[0]?.line ?? '').endsWith('filters={"type":["container"]}'));
});

test('following changes ends quietly when it is told to', async (t) => {
  const abort = new AbortController();
  const { engine } = await engineThat(t, (response) => {
    response.writeHead(200);
    response.write(`${JSON.stringify({ Action: 'start' })}\n`);
  });
  let changes = 0;
  for await (const _ of engine.changes(abort.signal)) {
    changes += 1;
    abort.abort();
  }
  t.is(changes, 1);
});

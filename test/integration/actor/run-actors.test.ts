import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { request } from '../../../lib/http/node-http.ts';
import { bareEnvironment } from '../../support/bare-environment.ts';
import { makeScratch } from '../../support/leftovers.ts';

const fixture = new URL('../../support/host-fixture.ts', import.meta.url).pathname;

interface Host {
  child: ChildProcess;
  socket: string;
  output: () => string;
  line: (event: string) => Promise<void>;
  exit: Promise<[number | null, string | null]>;
}

async function start(t: ExecutionContext, environment: Record<string, string>): Promise<Host> {
  const directory = await makeScratch('host');
  const socket = join(directory, 'admin.sock');
  const child = spawn(process.execPath, ['--expose-gc', fixture], {
    env: bareEnvironment({
      NODE_NAME: 'n1',
      WEFT_ADMIN_ADDRESS: `unix:${socket}`,
      ...environment,
    }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  const waiters = new Set<() => void>();
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      for (const waiter of waiters) waiter();
    });
  }
  const exit = once(child, 'close') as Promise<[number | null, string | null]>;
  t.teardown(async () => {
    child.kill('SIGKILL');
    await exit;
    await rm(directory, { recursive: true });
  });
  const line = (event: string): Promise<void> =>
    new Promise((resolve) => {
      const check = (): void => {
        if (!output.includes(`"${event}"`)) return;
        waiters.delete(check);
        resolve();
      };
      waiters.add(check);
      check();
    });
  return { child, socket, output: () => output, line, exit };
}

async function call(socket: string, method: string, path: string): Promise<[number, string]> {
  const sent = request({ socketPath: socket, method, path, agent: false });
  sent.end();
  const [response] = await once(sent, 'response');
  return [response.statusCode, await text(response)];
}

async function residentOfFiles(child: ChildProcess): Promise<number> {
  const status = await readFile(`/proc/${child.pid}/status`, 'utf8');
  return Number(/^RssFile:\s+(\d+) kB$/m.exec(status)?.[1]);
}

test('an idle process gives back what it took only to start, and works', async (t) => {
  const host = await start(t, { RUST_LOG: 'debug' });
  await host.line('actor.started');
  const before = await residentOfFiles(host.child);
  t.is((await call(host.socket, 'POST', '/fixture/open'))[0], 200);
  await host.line('host.memory-released');
  const after = await residentOfFiles(host.child);
  t.true(after < before, `${before} kB before, ${after} kB after`);
  t.deepEqual(await call(host.socket, 'GET', '/healthz/ready'), [200, 'ready\n']);
  host.child.kill('SIGTERM');
  t.deepEqual(await host.exit, [0, null]);
});

test('an actor is ready when its blockers are released, and drains on SIGTERM with exit 0', async (t) => {
  const host = await start(t, {});
  await host.line('actor.started');
  t.deepEqual(await call(host.socket, 'GET', '/healthz/ready'), [
    500,
    'not ready, pending: gate\n',
  ]);
  t.is((await call(host.socket, 'GET', '/fixture/open'))[0], 405);
  t.is((await call(host.socket, 'POST', '/fixture/open'))[0], 200);
  t.deepEqual(await call(host.socket, 'GET', '/healthz/ready'), [200, 'ready\n']);
  const status = JSON.parse((await call(host.socket, 'GET', '/status'))[1]);
  t.like(status.actors[0], { name: 'fixture', node: 'n1', state: 'ready', pid: host.child.pid });
  t.regex((await call(host.socket, 'GET', '/metrics'))[1], /process_cpu_seconds_total/);
  t.is((await call(host.socket, 'GET', '/nowhere'))[0], 404);
  t.is((await call(host.socket, 'GET', '//'))[0], 400);
  t.is((await call(host.socket, 'GET', 'http://['))[0], 400);
  host.child.kill('SIGTERM');
  t.is((await host.exit)[0], 0);
  t.regex(host.output(), /"reason":"drained"/);
});

test('/quitquitquit drains like a signal', async (t) => {
  const host = await start(t, {});
  await host.line('actor.started');
  t.deepEqual(await call(host.socket, 'POST', '/quitquitquit'), [200, 'shutdown now\n']);
  t.is((await host.exit)[0], 0);
});

test('a drain that does not end is cut at the deadline', async (t) => {
  const host = await start(t, {
    WEFT_FIXTURE_MODE: 'slow-drain',
    CONNECTION_TERMINATION_DEADLINE: '100ms',
  });
  await host.line('actor.started');
  host.child.kill('SIGTERM');
  t.is((await host.exit)[0], 0);
  t.regex(host.output(), /drain-deadline/);
});

test('/quitquitquit?deadline=none drains for as long as it takes; SIGINT still ends it', async (t) => {
  const host = await start(t, {
    WEFT_FIXTURE_MODE: 'slow-drain',
    CONNECTION_TERMINATION_DEADLINE: '1ms',
  });
  await host.line('actor.started');
  const refused = await call(host.socket, 'POST', '/quitquitquit?deadline=5s');
  t.deepEqual(refused, [400, 'deadline: must be none, got "5s"\n']);
  await call(host.socket, 'POST', '/quitquitquit?deadline=none');
  await host.line('actor.draining');
  // The configured deadline has long passed.
  const status = JSON.parse((await call(host.socket, 'GET', '/status'))[1]);
  t.is(status.actors[0].state, 'draining');
  host.child.kill('SIGINT');
  t.is((await host.exit)[0], 0);
  t.regex(host.output(), /"remainingMs":null/);
});

test('a second SIGINT forces the end', async (t) => {
  const host = await start(t, {
    WEFT_FIXTURE_MODE: 'slow-drain',
    CONNECTION_TERMINATION_DEADLINE: '60s',
  });
  await host.line('actor.started');
  host.child.kill('SIGINT');
  await host.line('actor.draining');
  host.child.kill('SIGINT');
  t.is((await host.exit)[0], 0);
});

test('a failed start and failed background work end the process with 1 and say why', async (t) => {
  const started = await start(t, { WEFT_FIXTURE_MODE: 'fail-start' });
  t.is((await started.exit)[0], 1);
  t.regex(started.output(), /cannot start/);
  const working = await start(t, { WEFT_FIXTURE_MODE: 'fail-work' });
  t.is((await working.exit)[0], 1);
  t.regex(working.output(), /actor.work-failed/);
});

test('an actor that leaves handles behind is named and ended', async (t) => {
  const host = await start(t, { WEFT_FIXTURE_MODE: 'leak' });
  await host.line('actor.started');
  host.child.kill('SIGTERM');
  t.is((await host.exit)[0], 1);
  t.regex(host.output(), /leftover-handles/);
});

test('wrong configuration is reported whole, with exit 78', async (t) => {
  const host = await start(t, { WEFT_FIXTURE_MODE: 'x', WEFT_FIXTURE_MOD: 'y', NODE_NAME: '' });
  t.is((await host.exit)[0], 78);
  t.regex(host.output(), /WEFT_FIXTURE_MODE must be one of/);
  t.regex(host.output(), /WEFT_FIXTURE_MOD is unknown, did you mean WEFT_FIXTURE_MODE\?/);
  t.regex(host.output(), /NODE_NAME is required by fixture/);
});

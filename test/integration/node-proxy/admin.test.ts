/** Tests the paths of port 15000, and its behaviour with bad clients. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { Profile } from 'pprof-format';
import { systemClock } from '../../../lib/clock/clock.ts';
import type { AccessSettings } from '../../../lib/log/access-gate.ts';
import { createLogger, loggerState, setLogFilter } from '../../../lib/log/logger.ts';
import { ThreadProfiler } from '../../../lib/profile/thread-profiler.ts';
import { MAX_DISCARDED_BODY_BYTES } from '../../../lib/http/http-server.ts';
import { MAX_CONFIG_DUMPS } from '../../../services/node-proxy/limits.ts';
import { AdminPaths } from '../../../services/node-proxy/servers/admin.ts';
import type { AdminActions } from '../../../services/node-proxy/servers/admin.ts';
import { PortServer } from '../../../services/node-proxy/servers/port-server.ts';
import { StateThread } from '../../../services/node-proxy/state-thread/state-thread.ts';
import { pprofTop } from '../../support/pprof.ts';
import { until } from '../../support/until.ts';

const log = createLogger({ actor: 'test', level: 'off' });
const DESCRIPTORS = 20_000;

async function serve(t: ExecutionContext, changes: Partial<AdminActions> = {}) {
  const logger = createLogger({ actor: 'test', level: 'info' }, { write: () => undefined });
  let accessLog: AccessSettings = { rules: 'all', linesPerSecond: 0 };
  const shutdowns: string[] = [];
  const main = new ThreadProfiler();
  const { handler } = new AdminPaths({
    async *configDump() {
      yield '{"workloads":[]}';
    },
    logging: {
      get filter() {
        return loggerState(logger).filter;
      },
      initialFilter: 'info',
      setFilter: (filter) => setLogFilter(logger, filter),
      get accessLog() {
        return accessLog;
      },
      initialAccessLog: accessLog,
      setAccessLog: (settings) => {
        accessLog = settings;
      },
    },
    profiled: () => [{ name: 'main', profile: (command) => main.run(command) }],
    requestShutdown: (why) => shutdowns.push(why),
    ...changes,
  });
  const server = new PortServer(
    { name: 'admin', port: 0, hosts: ['127.0.0.1'], handler },
    { log, clock: systemClock, descriptors: DESCRIPTORS },
  );
  await server.listen();
  t.teardown(() => server.close());
  const ask = async (path: string, init: RequestInit = {}) => {
    const response = await fetch(`http://127.0.0.1:${server.port}${path}`, init);
    return { status: response.status, text: await response.text() };
  };
  const post = (path: string) => ask(path, { method: 'POST' });
  return { ask, post, shutdowns, port: server.port ?? 0 };
}

async function dial(t: ExecutionContext, port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

// spec: observability.md §4
test('the dashboard lists every path, and others are not found', async (t) => {
  const { ask } = await serve(t);
  const page = await ask('/');
  for (const path of ['/config_dump', '/logging', '/quitquitquit', '/debug/pprof/profile']) {
    t.true(page.text.includes(`href="${path}"`), path);
  }
  t.is((await ask('/config_dumps')).status, 404);
});

// spec: observability.md §4
test('/logging adds to the levels, resets them, and refuses what it cannot read', async (t) => {
  const { ask, post } = await serve(t);
  t.is((await ask('/logging')).status, 405);
  t.regex((await ask('/logging')).text, /usage: POST \/logging/);
  t.deepEqual(await post('/logging'), { status: 200, text: 'current log level is info\n' });
  const added = await post('/logging?level=debug,access=off');
  t.deepEqual(added, { status: 200, text: 'current log level is access=off,debug\n' });
  t.is(
    (await post('/logging?level=policy=trace')).text,
    'current log level is access=off,policy=trace,debug\n',
  );
  for (const bad of ['loud', 'access:debug', 'access=loud', 'info,']) {
    const refused = await post(`/logging?level=${bad}`);
    t.is(refused.status, 400, bad);
    t.regex(refused.text, /invalid level: /);
  }
  t.regex((await post('/logging')).text, /policy=trace/);
  t.is((await post('/logging?reset&level=warn')).text, 'current log level is warn\n');
  t.is((await post('/logging?reset')).text, 'current log level is info\n');
});

test('/access_log shows and changes which lines are written', async (t) => {
  const { ask, post } = await serve(t);
  t.deepEqual(JSON.parse((await ask('/access_log')).text), { rules: 'all', linesPerSecond: 0 });
  const changed = await post('/access_log?rules=errors,demo=5%25&rate=10');
  t.deepEqual(JSON.parse(changed.text), { rules: 'errors,demo=5%', linesPerSecond: 10 });
  t.deepEqual(JSON.parse((await post('/access_log?rate=0')).text), {
    rules: 'errors,demo=5%',
    linesPerSecond: 0,
  });
  t.is((await post('/access_log?rules=loud')).status, 400);
  t.is((await post('/access_log?rate=-1')).status, 400);
  t.regex((await ask('/access_log')).text, /errors,demo=5%/);
  t.regex((await post('/access_log?reset')).text, /"rules":"all"/);
});

// spec: observability.md §4
test('/quitquitquit takes a POST only', async (t) => {
  const { ask, post, shutdowns } = await serve(t);
  t.is((await ask('/quitquitquit')).status, 405);
  t.deepEqual(shutdowns, []);
  t.deepEqual(await post('/quitquitquit'), { status: 200, text: 'shutdown now\n' });
  t.deepEqual(shutdowns, ['quitquitquit']);
});

test('a dump that cannot begin is an error, one that breaks off is cut', async (t) => {
  let texts = 0;
  const { ask } = await serve(t, {
    async *configDump() {
      for (; texts > 0; texts -= 1) yield 'x'.repeat(100_000);
      throw new Error('the state is gone');
    },
  });
  t.deepEqual(await ask('/config_dump'), { status: 500, text: 'the state is gone\n' });
  texts = 3;
  await t.throwsAsync(ask('/config_dump'));
});

test('a client that does not read holds up the dump, and ends it when it goes', async (t) => {
  let begun = 0;
  let made = 0;
  let ended = 0;
  const { ask, port } = await serve(t, {
    async *configDump() {
      begun += 1;
      try {
        for (;;) {
          made += 1;
          yield 'x'.repeat(65_536);
        }
      } finally {
        ended += 1;
      }
    },
  });
  const clients = await Promise.all(Array.from({ length: MAX_CONFIG_DUMPS }, () => dial(t, port)));
  for (const client of clients)
    client.pause().write('GET /config_dump HTTP/1.1\r\nhost: x\r\n\r\n');
  await until(() => begun === MAX_CONFIG_DUMPS, { what: 'the dumps to begin' });
  let seen = { made: -1, times: 0 };
  await until(
    () => {
      seen = made === seen.made ? { made, times: seen.times + 1 } : { made, times: 0 };
      return seen.times > 5;
    },
    { what: 'the dumps to stand' },
  );
  t.is((await ask('/config_dump')).status, 503);
  for (const client of clients) client.destroy();
  await until(() => ended === MAX_CONFIG_DUMPS, { what: 'the dumps to end' });
});

// spec: observability.md §4
test('profile parameters have bounds', async (t) => {
  const { ask } = await serve(t);
  for (const query of ['seconds=0', 'seconds=301', 'frequency=0', 'frequency=1001', 'seconds=x']) {
    const answer = await ask(`/debug/pprof/profile?${query}`);
    t.is(answer.status, 400, query);
    t.regex(answer.text, /must be a whole number from 1 to/);
  }
});

// spec: observability.md §4
test('a CPU profile has the threads as labels, and only one is taken at a time', async (t) => {
  const main = new ThreadProfiler();
  const state = new StateThread(
    {
      node: 'n',
      dedicatedTo: null,
      logLevel: 'off',
      logFormat: 'json',
      policyUnknownReference: 'deny',
    },
    true,
    systemClock,
    {
      ready: () => undefined,
      want: () => undefined,
      identities: () => undefined,
      failed: () => t.fail(),
    },
  );
  t.teardown(() => state.close());
  const { port } = await serve(t, {
    profiled: () => [
      { name: 'main', profile: (command) => main.run(command) },
      { name: 'state', profile: (command) => state.profile(command) },
    ],
  });
  const url = `http://127.0.0.1:${port}/debug/pprof/profile?seconds=1&frequency=500`;
  const work = setInterval(function busyForTheProfile() {
    const endMs = performance.now() + 5;
    while (performance.now() < endMs) Math.random();
  }, 10);
  t.teardown(() => clearInterval(work));
  const [first, second] = await Promise.all([fetch(url), fetch(url)]);
  const [taken, refused] = first.ok ? [first, second] : [second, first];
  t.is(refused.status, 409);
  const bytes = Buffer.from(await taken.arrayBuffer());
  const profile = Profile.decode(gunzipSync(bytes));
  const text = (index: number | bigint): string => profile.stringTable.strings[Number(index)] ?? '';
  const threads = new Set(profile.sample.flatMap(({ label }) => label.map(({ str }) => text(str))));
  t.true(threads.has('main'));
  t.true(profile.function.some(({ name }) => text(name) === 'busyForTheProfile'));
  t.deepEqual(
    profile.sampleType.map(({ type, unit }) => [text(type), text(unit)]),
    [
      ['samples', 'count'],
      ['cpu', 'nanoseconds'],
    ],
  );
  const dir = await mkdtemp(join(tmpdir(), 'weft-pprof-'));
  t.teardown(() => rm(dir, { recursive: true }));
  await writeFile(join(dir, 'cpu.pb.gz'), bytes);
  const top = await pprofTop(join(dir, 'cpu.pb.gz'));
  if (top === null)
    t.log('SKIPPED in part: not shown to go tool pprof, which WEFT_REQUIRE_GO=1 asks for');
  else t.regex(top, /busyForTheProfile/);
});

// spec: observability.md §4
test('the heap is profiled only while that is active', async (t) => {
  const { ask, port } = await serve(t);
  t.is((await ask('/debug/pprof/heap')).status, 500);
  t.is((await ask('/debug/pprof/heap/profiling')).text, 'heap profiling active: false\n');
  t.is((await ask('/debug/pprof/heap/profiling?activate=yes')).status, 400);
  t.regex((await ask('/debug/pprof/heap/profiling?activate=true')).text, /active: true/);
  t.regex((await ask('/debug/pprof/heap/profiling?activate=true')).text, /active: true/);
  const kept = Array.from({ length: 50_000 }, (_, index) => ({ index, text: `kept ${index}` }));
  const answer = await fetch(`http://127.0.0.1:${port}/debug/pprof/heap`);
  const profile = Profile.decode(gunzipSync(Buffer.from(await answer.arrayBuffer())));
  t.is(profile.stringTable.strings[Number(profile.sampleType[0]?.type)], 'inuse_space');
  t.true(profile.sample.length > 0);
  t.is(kept.length, 50_000);
  t.regex((await ask('/debug/pprof/heap/profiling?activate=false')).text, /active: false/);
  t.is((await ask('/debug/pprof/heap')).status, 500);
});

// spec: observability.md §4
test('a header that comes too slowly or is too long ends the connection', async (t) => {
  const { port, ask } = await serve(t);
  const slow = await dial(t, port);
  slow.resume().write('GET / HTTP/1.1\r\nhost:');
  const long = await dial(t, port);
  let answer = '';
  long.on('data', (chunk: Buffer) => (answer += chunk.toString()));
  long.write(`GET / HTTP/1.1\r\nhost: x\r\nlong: ${'x'.repeat(9_000)}\r\n\r\n`);
  await until(() => slow.destroyed && long.destroyed, { what: 'both to be ended' });
  t.regex(answer, /^HTTP\/1\.1 431 /);
  t.is((await ask('/logging')).status, 405);
});

test('a body above its bound is refused or cut', async (t) => {
  const { port, post, shutdowns } = await serve(t);
  const announced = await dial(t, port);
  let answer = '';
  announced.on('data', (chunk: Buffer) => (answer += chunk.toString()));
  announced.write(
    `POST /quitquitquit HTTP/1.1\r\nhost: x\r\ncontent-length: ${MAX_DISCARDED_BODY_BYTES + 1}\r\n\r\n`,
  );
  await until(() => announced.destroyed, { what: 'the refusal' });
  t.regex(answer, /^HTTP\/1\.1 413 /);
  t.deepEqual(shutdowns, []);
  const endless = await dial(t, port);
  endless.resume().write('POST /logging HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n');
  const chunk = `4000\r\n${'x'.repeat(0x4000)}\r\n`;
  for (let count = 0; count < 6; count += 1) endless.write(chunk);
  await until(() => endless.destroyed, { what: 'the cut' });
  t.is((await post('/logging')).status, 200);
});

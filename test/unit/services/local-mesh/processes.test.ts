import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { createLogger } from '../../../../lib/log/logger.ts';
import { limitLogs } from '../../../../services/local-mesh/log-files.ts';
import { ManagedProcess } from '../../../../services/local-mesh/managed-process.ts';
import { PodContainer } from '../../../../services/local-mesh/pod-container.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { makeScratch } from '../../../support/leftovers.ts';
import { until } from '../../../support/until.ts';

const log = createLogger({ actor: 'test' }, { write: () => undefined });
const PATH = '/usr/bin:/bin';

async function scratch(t: ExecutionContext): Promise<string> {
  const folder = await makeScratch('process');
  t.teardown(() => rm(folder, { recursive: true }));
  return folder;
}

async function managed(t: ExecutionContext, script: string) {
  const logFile = join(await scratch(t), 'a.log');
  const clock = new FakeClock();
  const one = new ManagedProcess(
    {
      name: 'a',
      node: null,
      command: ['sh', '-c', script],
      env: { PATH },
      logFile,
      adminSocket: null,
    },
    { clock, log },
  );
  return { one, clock, output: () => readFile(logFile, 'utf8') };
}

test('a process that ends is started again, until it is stopped', async (t) => {
  const { one, clock, output } = await managed(t, 'echo run');
  await one.start();
  await until(() => one.status().state === 'backoff', { what: 'its end' });
  // Long enough for the first restart, too short for another.
  await clock.advance(250);
  await until(async () => (await output()) === 'run\nrun\n', { what: 'its second run' });
  t.is(one.status().restarts, 1);
  await until(() => one.status().state === 'backoff', { what: 'its second end' });
  await one.stop(1_000);
  t.is(clock.pending, 0);
  t.is(one.status().state, 'stopped');
});

test('a stop wins over a start, at whichever step of it', async (t) => {
  for (let turns = 0; turns < 40; turns += 1) {
    const { one } = await managed(t, 'sleep 60');
    const starting = one.start();
    for (let turn = 0; turn < turns; turn += 1) await setImmediate();
    await one.stop(1_000);
    await starting;
    t.is(one.pid, null, `stopped after ${turns} turns`);
  }
});

test('a stop that comes while a process is being started wins', async (t) => {
  const { one, output } = await managed(t, 'echo run; sleep 60');
  const starting = one.start();
  await one.stop(1_000);
  await starting;
  t.is(one.pid, null);
  t.is(one.status().state, 'stopped');
  t.is(await output(), '');
});

test('a process that refuses its configuration is not started again', async (t) => {
  const { one, clock } = await managed(t, 'exit 78');
  await one.start();
  await until(() => one.status().state === 'failed', { what: 'its end' });
  t.is(clock.pending, 0);
});

async function container(
  t: ExecutionContext,
  script: string,
  restartPolicy: 'Always' | 'OnFailure' | 'Never',
  logFile = 'a.log',
) {
  const file = join(await scratch(t), logFile);
  const clock = new FakeClock();
  const one = new PodContainer(
    { command: ['sh', '-c', script], env: { PATH }, logFile: file, restartPolicy },
    { clock, log, onChange: () => undefined },
  );
  return { one, clock, output: () => readFile(file, 'utf8') };
}

test('a stop that comes while a container is being started wins', async (t) => {
  const { one, output } = await container(t, 'echo run; sleep 60', 'Always');
  const starting = one.start();
  await one.stop(1_000);
  await starting;
  t.is(one.state, 'stopped');
  t.is(await output(), '');
});

for (const [policy, script, state] of [
  ['Always', 'true', 'backoff'],
  ['OnFailure', 'true', 'succeeded'],
  ['OnFailure', 'false', 'backoff'],
  ['Never', 'false', 'failed'],
] as const) {
  test(`policy ${policy}: after ${script} a container is ${state}`, async (t) => {
    const { one, clock } = await container(t, script, policy);
    await one.start();
    await until(() => one.state === state, { what: 'its end' });
    t.is(clock.pending, state === 'backoff' ? 1 : 0);
    await one.stop(1_000);
    t.is(clock.pending, 0);
  });
}

test('a container whose log cannot be opened is tried again', async (t) => {
  const { one, clock } = await container(t, 'true', 'Always', 'no/such/folder.log');
  await one.start();
  t.is(one.state, 'backoff');
  await one.stop(1_000);
  t.is(clock.pending, 0);
});

test('every log of a mesh is limited, and nothing else', async (t) => {
  const { mkdir, readdir, writeFile } = await import('node:fs/promises');
  const folder = await scratch(t);
  for (const name of ['redis.log', 'pod.demo.web.main.log', 'notes.txt']) {
    await writeFile(join(folder, name), 'long enough');
  }
  await writeFile(join(folder, 'ca.log'), 'short');
  await mkdir(join(folder, 'folder'));
  await limitLogs(folder, 5);
  t.deepEqual((await readdir(folder)).sort(), [
    'ca.log',
    'folder',
    'notes.txt',
    'pod.demo.web.main.log',
    'pod.demo.web.main.log.1',
    'redis.log',
    'redis.log.1',
  ]);
  t.is(await readFile(join(folder, 'redis.log'), 'utf8'), '');
});

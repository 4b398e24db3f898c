import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { RoleProcesses } from '../../../../services/local-mesh/role-processes.ts';
import { askJson } from '../../../../services/local-mesh/unix-http.ts';
import { makeScratch } from '../../../support/leftovers.ts';
import { until } from '../../../support/until.ts';

const log = createLogger({ actor: 'test' }, { write: () => undefined });
const FAKE = new URL('../../../support/fake-actor.ts', import.meta.url).pathname;

/** Makes a role of fake actors with `behaviours` by generation; the last one also applies to later generations. */
async function role(
  t: ExecutionContext,
  options: {
    count?: number;
    replacement?: 'beside' | 'after';
    behaviours?: readonly string[];
    drainDeadlineMs?: number;
  },
) {
  const folder = await makeScratch('role');
  const published: (string | null)[] = [];
  const behaviours = options.behaviours ?? ['ready'];
  const processes = new RoleProcesses(
    {
      name: 'node-proxy',
      node: 'node-1',
      count: options.count ?? 1,
      replacement: options.replacement ?? 'beside',
      drainDeadlineMs: options.drainDeadlineMs ?? null,
      spec: ({ generation, number }) => {
        const behaviour = behaviours[generation - 1] ?? behaviours.at(-1) ?? 'ready';
        const socket = join(folder, `${number}.sock`);
        return {
          name: 'node-proxy',
          node: 'node-1',
          command: [process.execPath, FAKE, socket, behaviour],
          env: {},
          logFile: join(folder, 'log'),
          adminSocket: socket,
          generation,
        };
      },
      publish: (spec) => {
        published.push(spec.adminSocket);
        return Promise.resolve();
      },
    },
    { clock: systemClock, log },
  );
  t.teardown(async () => {
    await processes.stop(5_000);
    await rm(folder, { recursive: true });
  });
  const ready = async (): Promise<boolean> => {
    await processes.refresh();
    return processes.members.every((process) => process.status().state === 'ready');
  };
  await processes.start();
  return { processes, published, ready };
}

const summary = (processes: RoleProcesses) =>
  processes.status().map(({ generation, state, retiring }) => ({ generation, state, retiring }));

test('a new generation serves before the old one is told to end, and both are shown', async (t) => {
  const { processes, published, ready } = await role(t, { count: 2 });
  await until(ready, { what: 'the first generation' });
  const old = processes.members.map(({ pid }) => pid);
  const upgraded = await processes.upgrade(20_000);
  t.like(upgraded, { role: 'node-1/node-proxy', generation: 2, draining: old });
  t.deepEqual(summary(processes), [
    { generation: 2, state: 'ready', retiring: false },
    { generation: 2, state: 'ready', retiring: false },
    { generation: 1, state: 'draining', retiring: true },
    { generation: 1, state: 'draining', retiring: true },
  ]);
  t.deepEqual(
    published.map((socket) => socket?.split('/').at(-1)),
    ['1.sock', '3.sock'],
  );
  for (const pid of old) process.kill(pid ?? 0, 'SIGKILL');
  await until(() => processes.status().length === 2, { what: 'the old ones to be gone' });
});

test('a new generation that does not come up is given up, and the old one goes on', async (t) => {
  for (const behaviour of ['never', 'dies']) {
    const { processes, published, ready } = await role(t, { behaviours: ['ready', behaviour] });
    await until(ready, { what: 'the first generation' });
    const [before] = processes.members;
    await t.throwsAsync(processes.upgrade(1_000), {
      message: /the new node-1\/node-proxy is not ready/,
    });
    t.deepEqual(summary(processes), [{ generation: 1, state: 'ready', retiring: false }]);
    t.is(processes.members[0], before);
    t.is(published.length, 1);
  }
});

test('a replaced process drains without a limit, unless one was set', async (t) => {
  for (const [drainDeadlineMs, told] of [
    [undefined, '/quitquitquit?deadline=none'],
    [600_000, '/quitquitquit'],
  ] as const) {
    const { processes, ready } = await role(
      t,
      drainDeadlineMs === undefined ? {} : { drainDeadlineMs },
    );
    await until(ready, { what: 'the first generation' });
    const [old] = processes.members;
    const upgraded = await processes.upgrade(20_000);
    t.is(upgraded.drainDeadlineMs, drainDeadlineMs ?? null);
    const socket = old?.spec.adminSocket ?? '';
    t.is((await askJson<{ how: string }>({ socket, path: '/status' })).how, told);
    process.kill(old?.pid ?? 0, 'SIGKILL');
  }
});

test('one upgrade of a role at a time', async (t) => {
  const { processes, ready } = await role(t, {});
  await until(ready, { what: 'the first generation' });
  const first = processes.upgrade(20_000);
  await t.throwsAsync(processes.upgrade(20_000), { message: /is being replaced/ });
  await first;
});

test('a process that somebody ends by a signal is replaced while it drains', async (t) => {
  const { processes, ready } = await role(t, {});
  await until(ready, { what: 'the process' });
  const [old] = processes.members;
  process.kill(old?.pid ?? 0, 'SIGTERM');
  await until(async () => (await ready()) && processes.members[0] !== old, { what: 'another one' });
  t.deepEqual(summary(processes), [
    { generation: 1, state: 'ready', retiring: false },
    { generation: 1, state: 'draining', retiring: true },
  ]);
});

test('where two cannot stand beside each other, the old one ends first', async (t) => {
  const { processes, ready } = await role(t, { replacement: 'after' });
  await until(ready, { what: 'the process' });
  const [old] = processes.members;
  const upgrade = processes.upgrade(20_000);
  await until(() => old?.pid !== null, { what: 'the process' });
  // The fake drains until its second signal; the supervisor's time limit bounds the drain.
  process.kill(old?.pid ?? 0, 'SIGINT');
  t.like(await upgrade, { generation: 2, draining: [] });
  t.is(old?.pid, null);
  t.deepEqual(summary(processes), [{ generation: 2, state: 'ready', retiring: false }]);
});

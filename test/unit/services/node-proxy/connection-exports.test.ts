import type { MessagePort, Worker } from 'node:worker_threads';
import test from 'ava';
import type { TelemetryExport } from '../../../../lib/otlp/export-port.ts';
import type { ExportDrops, ExportedConnection } from '../../../../lib/otlp/model.ts';
import { ConnectionExports } from '../../../../services/node-proxy/connection-exports.ts';
import { EXPORT_POLL_MS, REPORT_TIMEOUT_MS } from '../../../../services/node-proxy/limits.ts';
import { ThreadHandle } from '../../../../services/node-proxy/pool/thread-handle.ts';
import type { ControlToThread } from '../../../../workers/listener/protocol/control.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { until } from '../../../support/until.ts';

const NONE = { logs: 0, traces: 0 };

function ended(name: string): ExportedConnection {
  const fields = { scope: 'access', 'src.workload': name };
  return { fields, severity: 'info', message: 'done', endedAtMs: 1, log: true, span: null };
}

function target() {
  const names: unknown[] = [];
  const drops: ExportDrops[] = [];
  const to: TelemetryExport = {
    connections: { logs: true, traceShare: null },
    add: (connections, dropped) => {
      names.push(...connections.map(({ fields }) => fields['src.workload']));
      drops.push(dropped);
    },
    addMetrics: () => undefined,
    families: () => Promise.resolve([]),
  };
  return { to, names, drops };
}

test('threads are asked again and again, one that does not answer holds up no other', async (t) => {
  const clock = new FakeClock();
  const { to, names, drops } = target();
  const missed: unknown[] = [];
  let count = 0;
  const well = {
    exports: () => {
      count += 1;
      return Promise.resolve({
        connections: [ended(`c${count}`)],
        dropped: { logs: 1, traces: 2 },
      });
    },
  };
  const ill = { exports: () => Promise.reject(new Error('gone')) };
  const fetcher = new ConnectionExports({
    clock,
    to,
    threads: () => [ill, well],
    missed: (error) => missed.push(error),
  });
  await clock.advance(EXPORT_POLL_MS);
  await clock.advance(EXPORT_POLL_MS);
  t.deepEqual(names, ['c1', 'c2']);
  t.deepEqual(drops[0], { logs: 1, traces: 2 });
  t.is(missed.length, 2);
  await fetcher.close();
  await fetcher.close();
  t.deepEqual(names, ['c1', 'c2', 'c3'], 'once more before the threads go');
  t.is(clock.pending, 0);
});

test('a thread is not asked while it has not answered, nor where no connections are wanted', async (t) => {
  const clock = new FakeClock();
  const { to } = target();
  let asked = 0;
  const answers: (() => void)[] = [];
  const thread = {
    exports: () => {
      asked += 1;
      return new Promise<{ connections: []; dropped: ExportDrops }>((resolve) =>
        answers.push(() => resolve({ connections: [], dropped: NONE })),
      );
    },
  };
  const deps = { clock, threads: () => [thread], missed: () => undefined };
  const fetcher = new ConnectionExports({ ...deps, to });
  await clock.advance(3 * EXPORT_POLL_MS);
  t.is(asked, 1);
  answers.shift()?.();
  await clock.advance(0);
  await clock.advance(EXPORT_POLL_MS);
  t.is(asked, 2);
  answers.shift()?.();
  await clock.advance(0);
  const closed = fetcher.close();
  await clock.advance(0);
  answers.shift()?.();
  await closed;
  const idle = new ConnectionExports({ ...deps, to: { ...to, connections: null } });
  await clock.advance(EXPORT_POLL_MS);
  await idle.close();
  t.is(asked, 3);
});

test('what a slow thread sends after its time is over is given to the next who asks', async (t) => {
  const clock = new FakeClock();
  const worker = { performance: { eventLoopUtilization: () => ({ utilization: 0 }) } };
  const thread = new ThreadHandle(0, worker as unknown as Worker, clock, {
    certificateNeeded: () => undefined,
  });
  const far: MessagePort = thread.farControl;
  const asked: number[] = [];
  far.on('message', (message: ControlToThread) => {
    if (message.type === 'report') asked.push(message.id);
  });
  const send = (index: number, names: readonly string[], done: boolean): void => {
    const id = asked[index];
    far.postMessage({ type: 'report', id, exports: names.map(ended), dropped: NONE, done });
  };
  t.teardown(() => far.close());

  const first = thread.exports();
  await until(() => asked.length === 1, { what: 'the question' });
  send(0, ['early'], false);
  await until(() => clock.pending === 1 && clock.nextInMs === REPORT_TIMEOUT_MS, {
    what: 'part one',
  });
  await clock.advance(REPORT_TIMEOUT_MS);
  await t.throwsAsync(first, { code: 'BUS_TIMEOUT' });
  send(0, ['late'], true);

  const second = thread.exports();
  await until(() => asked.length === 2, { what: 'the second question' });
  send(1, ['fresh'], true);
  const { connections } = await second;
  t.deepEqual(
    connections.map(({ fields }) => fields['src.workload']),
    ['early', 'late', 'fresh'],
  );
});

/** Measures how long a scrape blocks a listener thread with many label sets, without the main thread's work. */
import { performance } from 'node:perf_hooks';
import { setImmediate as turn } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { MessageChannel, Worker, isMainThread, workerData } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import { SeriesReader } from '../../lib/metrics/series-memory.ts';
import type { ControlFromThread } from '../../workers/listener/protocol/control.ts';
import { ListenerThread } from '../../workers/listener/thread.ts';
import { listenerSettings } from '../support/listener-kit.ts';
import { trafficFacts } from '../support/traffic-facts.ts';

const SCRAPES = 200;

/** Runs a listener thread's counters on this thread: opens and ends a connection under each of `sets` label sets. */
function listen(sets: number, control: MessagePort): void {
  const state = new MessageChannel();
  const { context } = new ListenerThread(
    {
      thread: 0,
      settings: listenerSettings,
      control,
      state: state.port2,
      revocations: null,
      budget: null,
    },
    carriedEngine,
    { write: () => {}, gather: () => {} },
  );
  for (let index = 0; index < sets; index += 1) {
    const facts = trafficFacts(index);
    context.traffic.open(facts, () => ({ sent: 1, received: 1 })).close('-');
  }
}

/** Measures the milliseconds that a scrape keeps the thread busy, and those until all its values are read here. */
async function measure(sets: number): Promise<{ busyMs: number; wholeMs: number; rows: number }> {
  const { port1, port2 } = new MessageChannel();
  const series = new SeriesReader();
  const answers = new Map<number, () => void>();
  port1.on('message', (message: ControlFromThread) => {
    if (message.type === 'series') series.take(message.message);
    else if (message.type === 'report') answers.get(message.id)?.();
  });
  const worker = new Worker(new URL(import.meta.url), {
    workerData: { sets, control: port2 },
    transferList: [port2],
  });
  let rows = 0;
  const scrape = async (id: number): Promise<void> => {
    const { promise, resolve } = Promise.withResolvers<void>();
    answers.set(id, resolve);
    port1.postMessage({ type: 'report', id, what: 'metrics' });
    await promise;
    rows = 0;
    series.forEach(() => (rows += 1));
  };
  // Warm up, so that compilation and garbage from the preparation are not counted for a scrape.
  for (let id = -SCRAPES; id < 0; id += 1) await scrape(id);
  await turn();
  const before = worker.performance.eventLoopUtilization();
  const startedMs = performance.now();
  for (let id = 1; id <= SCRAPES; id += 1) await scrape(id);
  const wholeMs = (performance.now() - startedMs) / SCRAPES;
  const { active } = worker.performance.eventLoopUtilization(before);
  await worker.terminate();
  port1.close();
  return { busyMs: active / SCRAPES, wholeMs, rows };
}

if (isMainThread) {
  const { values } = parseArgs({
    options: { sets: { type: 'string', default: '1000,5000,10000' } },
  });
  for (const text of values.sets.split(',')) {
    const { busyMs, wholeMs, rows } = await measure(Number(text));
    process.stdout.write(
      `${text} label sets, ${rows} rows: a scrape keeps the listener busy ${busyMs.toFixed(2)} ms, takes ${wholeMs.toFixed(2)} ms\n`,
    );
  }
} else {
  const { sets, control } = workerData as { sets: number; control: MessagePort };
  listen(sets, control);
}

/** A program of its own: collects the main thread's garbage again and again while other threads make functions and garbage. */
import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { compileFunction } from 'node:vm';
import { Worker, isMainThread } from 'node:worker_threads';
import { collectAll } from '../../lib/actor/collector.ts';
import { saveMemory } from '../../lib/linux/process.ts';

const THREADS = 3;
const COLLECTIONS = 60;
const FUNCTIONS = 200;
const OBJECTS = 20_000;

function thread(): void {
  saveMemory();
  const living: unknown[] = [];
  const functions: ((a: number, b: number) => unknown)[] = [];
  let made = 0;
  setInterval(() => {
    for (let index = 0; index < 3; index += 1) {
      made += 1;
      const body = `let sum = 0; for (let i = 0; i < 50; i += 1) sum += a * i + b + ${made}; return { sum, all: [sum, a, b] };`;
      // Functions of their own, so that there is code to drop.
      functions[made % FUNCTIONS] = compileFunction(body, ['a', 'b']) as (typeof functions)[number];
    }
    for (const one of functions) {
      for (let index = 0; index < 20; index += 1)
        living[(made * 7 + index) % 5_000] = one?.(index, made);
    }
    for (let index = 0; index < 3_000; index += 1)
      living[(made + index) % OBJECTS] = { all: [index, made] };
  }, 0);
}

async function main(): Promise<void> {
  const workers = Array.from(
    { length: THREADS },
    () => new Worker(new URL(import.meta.url), { resourceLimits: { maxYoungGenerationSizeMb: 6 } }),
  );
  await Promise.all(workers.map((worker) => once(worker, 'online')));
  for (let left = COLLECTIONS; left > 0; left -= 1) {
    collectAll();
    await setTimeout(5);
  }
  await Promise.all(workers.map((worker) => worker.terminate()));
}

if (isMainThread) await main();
else thread();

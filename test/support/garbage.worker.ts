/** A program of its own: prints what free memory of malloc (kB) and a thread's young garbage (bytes) gave when released. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import { Worker, isMainThread, parentPort } from 'node:worker_threads';
import { collectAll, collectYoung } from '../../lib/actor/collector.ts';
import { releaseFreeMemory } from '../../lib/linux/process.ts';

/** Too small for malloc to map each by itself. */
const BLOCK_BYTES = 64 << 10;
const BLOCKS = 256;

function resident(): number {
  const status = readFileSync('/proc/self/status', 'utf8');
  return Number(/^RssAnon:\s+(\d+) kB$/m.exec(status)?.[1]);
}

async function main(): Promise<void> {
  const [young] = await once(new Worker(new URL(import.meta.url)), 'message');
  const blocks = Array.from({ length: BLOCKS }, () => Buffer.allocUnsafeSlow(BLOCK_BYTES).fill(1));
  // The last stays, so that the others are not the end of the heap, which is given back without being asked for.
  const last = blocks.splice(0).at(-1);
  collectAll();
  const before = resident();
  await releaseFreeMemory();
  process.stdout.write(JSON.stringify({ free: before - resident(), young, kept: last?.length }));
}

function thread(): void {
  // The little garbage made below then causes no collection of its own.
  collectAll();
  for (let index = 0; index < 1_000; index += 1) {
    parentPort?.emit(
      'garbage',
      Array.from({ length: 20 }, () => index),
    );
  }
  const before = getHeapStatistics().used_heap_size;
  collectYoung();
  parentPort?.postMessage(before - getHeapStatistics().used_heap_size);
}

if (isMainThread) await main();
else thread();

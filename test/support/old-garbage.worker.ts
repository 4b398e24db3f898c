/**
 * A program of its own: prints how large the heap of a thread becomes (bytes) that makes garbage which survives young
 * collections, without and with {@link saveMemory}.
 */
import { once } from 'node:events';
import { getHeapStatistics } from 'node:v8';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { saveMemory } from '../../lib/linux/process.ts';

/** Each lives until so many others have been made: 4 MB, twice a young generation. */
const LIVING = 4_000;
const OBJECTS = 150_000;

async function largest(saves: boolean): Promise<number> {
  const worker = new Worker(new URL(import.meta.url), {
    workerData: saves,
    resourceLimits: { maxYoungGenerationSizeMb: 6 },
  });
  const [bytes] = (await once(worker, 'message')) as [number];
  return bytes;
}

function thread(): void {
  if (workerData === true) saveMemory();
  const living: unknown[] = [];
  let most = 0;
  for (let index = 0; index < OBJECTS; index += 1) {
    living[index % LIVING] = Array.from({ length: 120 }, () => index);
    if (index % 1_000 === 0) most = Math.max(most, getHeapStatistics().total_heap_size);
  }
  parentPort?.postMessage(most);
}

if (isMainThread) {
  const usual = await largest(false);
  process.stdout.write(JSON.stringify({ usual, saving: await largest(true) }));
} else {
  thread();
}

import test from 'ava';
import { ExportQueue } from '../../../../lib/otlp/export-queue.ts';
import type { SendResult } from '../../../../lib/otlp/export-queue.ts';
import { DROP_LOG_INTERVAL_MS } from '../../../../lib/otlp/limits.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const SENT: SendResult = { kind: 'sent' };
const FAILED: SendResult = { kind: 'failed', error: 'connect ECONNREFUSED' };
const settings = { maxItems: 10, batchItems: 4, delayMs: 1_000 };

function queue() {
  const clock = new FakeClock();
  const { log, lines } = keptLog('test');
  const batches: number[][] = [];
  const waiting: ((result: SendResult) => void)[] = [];
  const counts: Record<string, number> = {};
  const count = (what: string, items: number): void => {
    counts[what] = (counts[what] ?? 0) + items;
  };
  const items = new ExportQueue<number>('logs', settings, {
    clock,
    log,
    counts: {
      sent: (_, sent) => count('sent', sent),
      dropped: (_, reason, dropped) => count(reason, dropped),
      failed: () => count('failed', 1),
    },
    send: (batch) => {
      batches.push([...batch]);
      return new Promise((resolve) => waiting.push(resolve));
    },
  });
  const answer = async (result: SendResult): Promise<void> => {
    waiting.shift()?.(result);
    await clock.advance(0);
  };
  const events = (): string[] => lines.map(({ message }) => message);
  return { clock, items, batches, answer, counts, events, lines };
}

test('items wait for others, a full batch goes at once, one request at a time', async (t) => {
  const { clock, items, batches, answer, counts } = queue();
  items.add([1]);
  t.deepEqual(batches, []);
  await clock.advance(settings.delayMs);
  t.deepEqual(batches, [[1]]);
  items.add([2, 3, 4, 5, 6]);
  t.is(batches.length, 1, 'the first request is still out');
  await answer(SENT);
  t.deepEqual(batches, [[1], [2, 3, 4, 5]]);
  await answer(SENT);
  t.is(batches.length, 2);
  await clock.advance(settings.delayMs);
  await answer(SENT);
  t.deepEqual(batches.at(-1), [6]);
  t.deepEqual(counts, { sent: 6 });
  t.is(items.length, 0);
});

test('at the bound the newest are dropped, counted, and told of from time to time', async (t) => {
  const { clock, items, counts, lines, answer, batches } = queue();
  items.add([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  items.add([10, 11, 12]);
  t.is(items.length, settings.maxItems, 'those of the request that is out count too');
  t.deepEqual(counts, { 'queue-full': 2 });
  t.like(lines, [
    { message: 'otlp.items-dropped', signal: 'logs', reason: 'queue-full', dropped: 2 },
  ]);
  items.add([13]);
  items.dropped(3, 'thread-full');
  t.is(lines.length, 1, 'a flood is one line');
  await clock.advance(DROP_LOG_INTERVAL_MS);
  items.add([14]);
  t.like(lines.at(-1), { message: 'otlp.items-dropped', dropped: 5 });
  t.deepEqual(counts, { 'queue-full': 4, 'thread-full': 3 });
  await answer(SENT);
  t.deepEqual(batches.at(-1), [5, 6, 7, 8]);
});

test('what a collector cannot be given is kept and tried again, and both changes are said', async (t) => {
  const { clock, items, batches, answer, counts, events } = queue();
  items.add([1, 2, 3, 4]);
  await answer(FAILED);
  t.is(items.length, 4);
  items.add([5, 6]);
  t.is(batches.length, 1, 'no hurry towards one that fails');
  await clock.advance(settings.delayMs);
  await answer(FAILED);
  await clock.advance(settings.delayMs);
  await answer(SENT);
  t.deepEqual(batches, [
    [1, 2, 3, 4],
    [1, 2, 3, 4],
    [1, 2, 3, 4],
  ]);
  await clock.advance(settings.delayMs);
  await answer(SENT);
  t.deepEqual(batches.at(-1), [5, 6]);
  t.deepEqual(counts, { failed: 2, sent: 6 });
  t.deepEqual(events(), ['otlp.export-failed', 'otlp.export-resumed']);
});

test('what a collector refuses is dropped, and the next batch follows', async (t) => {
  const { clock, items, batches, answer, counts } = queue();
  items.add([1, 2, 3, 4, 5]);
  await answer({ kind: 'refused', error: 'HTTP 400' });
  t.is(items.length, 1);
  await clock.advance(settings.delayMs);
  await answer(SENT);
  t.deepEqual(batches.at(-1), [5]);
  t.deepEqual(counts, { failed: 1, refused: 4, sent: 1 });
});

test('closing sends what is left, in batches', async (t) => {
  const { items, batches, answer, counts } = queue();
  items.add([1, 2, 3, 4, 5, 6]);
  const closed = items.close(1_000);
  await answer(SENT);
  await answer(SENT);
  t.true(await closed);
  t.deepEqual(batches, [
    [1, 2, 3, 4],
    [5, 6],
  ]);
  items.add([7]);
  t.deepEqual(counts, { sent: 6, 'process-end': 1 });
});

test('closing waits no longer than its bound, and counts what is left', async (t) => {
  const { clock, items, answer, counts, lines } = queue();
  items.add([1, 2, 3, 4, 5]);
  const closed = items.close(1_000);
  await clock.advance(1_000);
  t.false(await closed);
  t.deepEqual(counts, { 'process-end': 5 });
  t.like(lines.at(-1), { message: 'otlp.items-dropped', reason: 'process-end', dropped: 5 });
  await answer(SENT);
  t.deepEqual(counts, { 'process-end': 5 }, 'an answer that comes too late changes nothing');
});

test('closing towards a collector that fails ends with the failure', async (t) => {
  const { items, answer, counts } = queue();
  items.add([1]);
  const closed = items.close(1_000);
  await answer(FAILED);
  t.true(await closed);
  t.deepEqual(counts, { failed: 1, 'process-end': 1 });
});

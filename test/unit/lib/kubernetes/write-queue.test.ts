import test from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import type { Clock } from '../../../../lib/clock/clock.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { CONCURRENT_WRITES } from '../../../../lib/kubernetes/limits.ts';
import { WriteQueue } from '../../../../lib/kubernetes/write-queue.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { until } from '../../../support/until.ts';

/** Above the policies, services and entries of the largest meshes. */
const MANY_OBJECTS = 50_000;

/** Waits at most a millisecond. */
const HASTY_CLOCK: Clock = {
  ...systemClock,
  sleep: (delayMs, signal) => systemClock.sleep(Math.min(delayMs, 1), signal),
};

function open(t: { teardown(end: () => Promise<void>): void }) {
  const { log, lines } = keptLog('test');
  const queue = new WriteQueue({ clock: HASTY_CLOCK, log });
  t.teardown(() => queue.close());
  return { queue, lines };
}

test('the latest write of a key wins, and a few keys are written at a time', async (t) => {
  const { queue } = open(t);
  const gate = Promise.withResolvers<void>();
  const written: string[] = [];
  let running = 0;
  let most = 0;
  const write = (value: string) => async (): Promise<void> => {
    running += 1;
    most = Math.max(most, running);
    await gate.promise;
    written.push(value);
    running -= 1;
  };
  for (let key = 0; key < 10; key += 1) queue.offer(`key-${key}`, write(`${key}-old`));
  await until(() => running === CONCURRENT_WRITES, { what: 'the first writes' });
  for (let key = 0; key < 10; key += 1) queue.offer(`key-${key}`, write(`${key}-new`));
  t.is(queue.size, 10);
  gate.resolve();
  await until(() => queue.size === 0, { what: 'the queue is empty' });
  t.is(most, CONCURRENT_WRITES);
  t.is(written.filter((value) => value.endsWith('-new')).length, 10);
  t.is(written.filter((value) => value.endsWith('-old')).length, CONCURRENT_WRITES);
});

test('a write is tried again, unless time cannot heal its failure', async (t) => {
  const { queue, lines } = open(t);
  let attempts = 0;
  queue.offer('away', async () => {
    attempts += 1;
    if (attempts < 4) throw new MeshError('KUBERNETES_UNAVAILABLE', 'away');
  });
  let refused = 0;
  queue.offer('invalid', async () => {
    refused += 1;
    throw new MeshError('KUBERNETES_INVALID', 'a field is wrong');
  });
  await until(() => queue.size === 0, { what: 'the queue is empty' });
  t.is(attempts, 4);
  t.is(refused, 1);
  t.deepEqual(
    lines
      .filter(({ message }) => message === 'kubernetes.write-dropped')
      .map((line) => line['object']),
    ['invalid'],
  );
});

test('the objects of a large mesh are all written, a few at a time', async (t) => {
  const { queue } = open(t);
  const written = new Set<number>();
  let running = 0;
  let most = 0;
  for (let key = 0; key < MANY_OBJECTS; key += 1) {
    queue.offer(`key-${key}`, async () => {
      running += 1;
      most = Math.max(most, running);
      await Promise.resolve();
      written.add(key);
      running -= 1;
    });
  }
  t.is(queue.size, MANY_OBJECTS);
  await queue.settled(new AbortController().signal);
  t.is(written.size, MANY_OBJECTS);
  t.is(most, CONCURRENT_WRITES);
});

test('a closed queue stops what runs, and drops what waits and what comes', async (t) => {
  const { queue } = open(t);
  let begun = 0;
  const never = (signal: AbortSignal): Promise<void> => {
    begun += 1;
    return new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => reject(new Error('closed')), { once: true });
    });
  };
  for (let key = 0; key < 10; key += 1) queue.offer(`key-${key}`, never);
  await until(() => begun === CONCURRENT_WRITES, { what: 'the first writes' });
  await queue.close();
  queue.offer('late', never);
  t.is(begun, CONCURRENT_WRITES);
  t.is(queue.size, 0);
});

test('the queue is settled once all is written, also what is tried again, or once the wait is over', async (t) => {
  const { queue } = open(t);
  await queue.settled(new AbortController().signal);
  let attempts = 0;
  queue.offer('late', async () => {
    attempts += 1;
    if (attempts < 3) throw new MeshError('KUBERNETES_UNAVAILABLE', 'away');
  });
  await queue.settled(new AbortController().signal);
  t.is(attempts, 3);
  t.is(queue.size, 0);
  queue.offer(
    'never',
    (signal) =>
      new Promise((_, reject) => {
        signal.addEventListener('abort', () =>
          reject(new MeshError('KUBERNETES_UNAVAILABLE', 'cut')),
        );
      }),
  );
  const over = new AbortController();
  const settled = queue.settled(over.signal);
  over.abort();
  await settled;
  t.is(queue.size, 1);
});

import test from 'ava';
import type { ExecutionContext } from 'ava';
import { HOT_SAMPLE_MS } from '../../../../services/node-proxy/limits.ts';
import { HotPods } from '../../../../services/node-proxy/pool/hot-pods.ts';
import type { WatchedThread } from '../../../../services/node-proxy/pool/hot-pods.ts';
import { capturedLog } from '../../../support/bus.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const HOT = 0.9;
const IDLE = 0.1;

/** A thread whose load and whose pods' work the test sets. */
class Thread implements WatchedThread {
  readonly number: number;
  readonly worker = {
    performance: {
      eventLoopUtilization: () => ({ idle: 0, active: 0, utilization: this.utilisation }),
    },
  };
  readonly pods = new Set<string>();
  utilisation = IDLE;
  asked = 0;
  done: Readonly<Record<string, number>> = {};

  constructor(number: number) {
    this.number = number;
  }

  async activity() {
    this.asked += 1;
    return Object.entries(this.done).map(([uid, total]) => ({ uid, total }));
  }
}

/** Makes threads of which the first has the pods `a` and `b`, and records which pods are shared with which thread. */
function spreading(t: ExecutionContext, hotAfterMs: number, count = 2) {
  const clock = new FakeClock();
  const threads = Array.from({ length: count }, (_, number) => new Thread(number));
  const pods = new Map(['a', 'b'].map((uid) => [uid, { threads: [0] }]));
  for (const uid of pods.keys()) threads[0]?.pods.add(uid);
  const shared: string[] = [];
  const hotPods = new HotPods(
    { utilisation: 0.7, hotAfterMs, coolAfterMs: 30_000 },
    {
      clock,
      log: capturedLog().log,
      threads: () => threads,
      pods: {
        pods,
        share: async (uid, thread) => void shared.push(`${uid} ${thread}`),
        unshare: () => t.fail('nothing was shared'),
      },
      onShared: () => undefined,
    },
  );
  t.teardown(() => hotPods.close());
  const [first] = threads;
  if (first === undefined) throw new Error('there is no thread');
  const asked = (): readonly number[] => threads.map((thread) => thread.asked);
  return { clock, first, asked, shared };
}

test('threads are asked for the activity of their pods only while one of them is hot', async (t) => {
  const { clock, first, asked, shared } = spreading(t, 60_000);
  await clock.advance(10 * HOT_SAMPLE_MS);
  t.deepEqual(asked(), [0, 0]);
  first.utilisation = HOT;
  await clock.advance(3 * HOT_SAMPLE_MS);
  t.deepEqual(asked(), [3, 3]);
  first.utilisation = IDLE;
  await clock.advance(10 * HOT_SAMPLE_MS);
  t.deepEqual(asked(), [3, 3]);
  t.deepEqual(shared, []);
});

test('a thread that is alone is not asked, as there is nobody to share with', async (t) => {
  const { clock, first, asked, shared } = spreading(t, 2 * HOT_SAMPLE_MS, 1);
  first.utilisation = HOT;
  await clock.advance(10 * HOT_SAMPLE_MS);
  t.deepEqual(asked(), [0]);
  t.deepEqual(shared, []);
});

for (const hotAfterMs of [0, 3 * HOT_SAMPLE_MS]) {
  test(`hottest is who did most since the last look, not since the last hot time: after ${hotAfterMs} ms`, async (t) => {
    const { clock, first, shared } = spreading(t, hotAfterMs);
    // One sample, then much work between the samples.
    first.done = { a: 10, b: 10 };
    first.utilisation = HOT;
    await clock.advance(hotAfterMs === 0 ? 50 : HOT_SAMPLE_MS);
    first.utilisation = IDLE;
    first.done = { a: 1_000_000, b: 10 };
    await clock.advance(10 * HOT_SAMPLE_MS);
    t.deepEqual(shared, []);
    first.utilisation = HOT;
    for (let look = 1; shared.length === 0 && look <= 200; look += 1) {
      first.done = { a: 1_000_000 + look, b: 10 + 100 * look };
      await clock.advance(50);
    }
    t.deepEqual(shared, ['b 1']);
  });
}

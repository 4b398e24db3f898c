import test from 'ava';
import { HotThreads } from '../../../../services/node-proxy/pool/hot-threads.ts';
import type { SpreadPod } from '../../../../services/node-proxy/pool/hot-threads.ts';

const SETTINGS = { utilisation: 0.7, hotAfterMs: 5_000, coolAfterMs: 30_000 };

function samples(...utilisations: number[]) {
  return utilisations.map((utilisation, thread) => ({ thread, utilisation }));
}

function pod(
  uid: string,
  threads: readonly number[],
  busy: Record<number, number> = {},
): SpreadPod {
  const activity = new Map(Object.entries(busy).map(([thread, done]) => [Number(thread), done]));
  return { uid, threads, occupied: threads, activity };
}

test('the hottest pod of a thread is shared once the thread was busy for long enough', (t) => {
  const rules = new HotThreads(SETTINGS);
  const pods = [pod('calm', [0], { 0: 10 }), pod('hot', [0], { 0: 1_000 }), pod('other', [1])];
  t.deepEqual(rules.decide(samples(0.9, 0.4, 0.1), pods, 0), []);
  t.deepEqual(rules.decide(samples(0.9, 0.4, 0.1), pods, 4_999), []);
  const share = { type: 'share', uid: 'hot', thread: 2 } as const;
  t.deepEqual(rules.decide(samples(0.9, 0.4, 0.1), pods, 5_000), [share]);
  // The next pod is moved only after the same time again.
  t.deepEqual(rules.decide(samples(0.9, 0.4, 0.1), pods, 9_000), []);
});

test('a thread that is to be relieved at once is so from the second look on: the first has nothing to compare', (t) => {
  const rules = new HotThreads({ ...SETTINGS, hotAfterMs: 0 });
  const pods = [pod('hot', [0])];
  const share = { type: 'share', uid: 'hot', thread: 1 } as const;
  t.deepEqual(rules.decide(samples(0.9, 0.1), pods, 0), []);
  t.deepEqual(rules.decide(samples(0.9, 0.1), pods, 50), [share]);
  t.deepEqual(rules.decide(samples(0.1, 0.1), pods, 100), []);
  t.deepEqual(rules.decide(samples(0.9, 0.1), pods, 150), []);
});

test('a moment of rest begins the count anew', (t) => {
  const rules = new HotThreads(SETTINGS);
  const pods = [pod('hot', [0])];
  rules.decide(samples(0.9, 0.1), pods, 0);
  rules.decide(samples(0.7, 0.1), pods, 3_000);
  t.deepEqual(rules.decide(samples(0.9, 0.1), pods, 6_000), []);
});

test('nothing is shared where no other thread has room, or holds the pod already', (t) => {
  const decide = (busy: number, spread: SpreadPod) => {
    const rules = new HotThreads(SETTINGS);
    rules.decide(samples(0.9, busy), [spread], 0);
    return rules.decide(samples(0.9, busy), [spread], 5_000);
  };
  t.deepEqual(decide(0.5, pod('hot', [0])), []);
  t.deepEqual(decide(0.1, pod('hot', [0, 1])), []);
  t.deepEqual(decide(0.1, { ...pod('hot', [0]), occupied: [0, 1] }), []);
  t.is(decide(0.1, pod('hot', [0])).length, 1);
});

test('a shared pod whose threads are idle for long enough loses the last one, one at a time', (t) => {
  const rules = new HotThreads(SETTINGS);
  const pods = [pod('was-hot', [0, 1, 2])];
  t.deepEqual(rules.decide(samples(0.1, 0.1, 0.1), pods, 0), []);
  t.deepEqual(rules.decide(samples(0.2, 0.2, 0.1), pods, 10_000), []);
  t.deepEqual(rules.decide(samples(0.1, 0.1, 0.1), pods, 20_000), []);
  const unshare = { type: 'unshare', uid: 'was-hot', thread: 2 } as const;
  t.deepEqual(rules.decide(samples(0.1, 0.1, 0.1), pods, 50_000), [unshare]);
  t.deepEqual(rules.decide(samples(0.1, 0.1, 0.1), [pod('was-hot', [0, 1])], 51_000), []);
});

test('a pod on one thread is left where it is', (t) => {
  const rules = new HotThreads(SETTINGS);
  rules.decide(samples(0), [pod('idle', [0])], 0);
  t.deepEqual(rules.decide(samples(0), [pod('idle', [0])], 100_000), []);
});

import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { SharedSlices } from '../../../../lib/async/shared-slices.ts';

test('pieces of work take turns, and the event loop goes on between slices', async (t) => {
  const slices = new SharedSlices(0);
  const order: string[] = [];
  function* work(name: string): Generator<unknown, string> {
    for (let step = 1; step <= 3; step += 1) {
      order.push(`${name}${step}`);
      yield;
    }
    return name;
  }
  const both = Promise.all([slices.run(work('a')), slices.run(work('b'))]);
  t.deepEqual(order, []);
  let turns = 0;
  const count = async (): Promise<void> => {
    while (slices.waiting > 0) {
      turns += 1;
      await turn();
    }
  };
  const counted = count();
  t.deepEqual(await both, ['a', 'b']);
  await counted;
  t.deepEqual(order, ['a1', 'b1', 'a2', 'b2', 'a3', 'b3']);
  t.true(turns > 4);
});

test('a failed piece rejects, and the others go on', async (t) => {
  const slices = new SharedSlices(10);
  function* bad(): Generator<unknown, void> {
    yield;
    throw new Error('no');
  }
  function* good(): Generator<unknown, number> {
    yield;
    yield;
    return 7;
  }
  const failed = t.throwsAsync(slices.run(bad()), { message: 'no' });
  t.is(await slices.run(good()), 7);
  await failed;
});

test('a step that leaves work to others ends its slice sooner', async (t) => {
  const slices = new SharedSlices(60_000);
  const order: string[] = [];
  const work = (name: string): Promise<void> =>
    slices.run(
      (function* () {
        order.push(name);
        slices.charge(60_000);
        yield;
      })(),
    );
  const both = Promise.all([work('a'), work('b')]);
  await turn();
  t.deepEqual(order, ['a']);
  await both;
  t.deepEqual(order, ['a', 'b']);
});

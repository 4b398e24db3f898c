import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { Slots } from '../../../../lib/async/slots.ts';
import type { Leave, SlotWait } from '../../../../lib/async/slots.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const wait: SlotWait = {
  limitMs: 1_000,
  maxWaiting: 2,
  failure: (why) => new MeshError('UPSTREAM_TIMEOUT', why),
};

/** Makes slots, and records the order in which they are taken. */
function fixture(max: number) {
  const clock = new FakeClock();
  const bound = { max };
  const slots = new Slots(() => bound.max, clock);
  const entered: string[] = [];
  const leaves: Leave[] = [];
  const take = async (name: string): Promise<void> => {
    leaves.push(await slots.take(wait));
    entered.push(name);
  };
  return { clock, bound, slots, entered, leaves, take };
}

test('places are given first come first, and never more than there are', async (t) => {
  const { clock, slots, entered, leaves, take } = fixture(1);
  await take('a');
  const all = [take('b'), take('c')];
  await clock.advance(0);
  t.deepEqual(entered, ['a']);
  t.is(slots.waiting, 2);
  leaves[0]?.();
  leaves[0]?.();
  await clock.advance(0);
  t.deepEqual(entered, ['a', 'b']);
  t.is(slots.taken, 1);
  leaves[1]?.();
  await Promise.all(all);
  t.deepEqual(entered, ['a', 'b', 'c']);
  t.is(clock.pending, 0);
});

test('who waits too long, or behind too many, is told so', async (t) => {
  const { clock, slots, leaves, take } = fixture(1);
  await take('a');
  const late = [take('b'), take('c')].map((waiting) =>
    t.throwsAsync(waiting, { code: 'UPSTREAM_TIMEOUT', message: 'no turn within 1000 ms' }),
  );
  await t.throwsAsync(take('d'), { code: 'UPSTREAM_TIMEOUT', message: '2 wait already' });
  await clock.advance(1_000);
  await Promise.all(late);
  t.is(slots.waiting, 0);
  leaves[0]?.();
  t.is(slots.taken, 0);
});

test('a bound that changes holds for those who come next', async (t) => {
  const { clock, bound, slots, leaves, take } = fixture(2);
  await take('a');
  await take('b');
  bound.max = 1;
  const waiting = take('c');
  leaves[0]?.();
  await clock.advance(0);
  t.is(slots.waiting, 1);
  bound.max = 2;
  leaves[1]?.();
  await waiting;
  t.is(slots.taken, 1);
});

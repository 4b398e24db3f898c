import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { FairTurns } from '../../../../workers/listener/limits/fair-turns.ts';

test('a key that comes late is served in the next round, not after all that came before it', async (t) => {
  const turns = new FairTurns(2);
  const order: string[] = [];
  const ask = async (key: string): Promise<void> => {
    await turns.turn(key);
    order.push(key);
  };
  const flood = Array.from({ length: 100 }, () => ask('noisy'));
  const quiet = [ask('quiet'), ask('quiet')];
  await Promise.all(quiet);
  t.true(order.length <= 8, `${order.length} pieces before two of the quiet key`);
  t.true(turns.waiting > 90);
  await Promise.all(flood);
  t.is(order.length, 102);
  t.is(turns.waiting, 0);
});

test('no more than so many are let go in one turn of the event loop', async (t) => {
  const turns = new FairTurns(3);
  const done: number[] = [];
  const all = Array.from({ length: 10 }, async (_, n) => {
    await turns.turn(`pod ${n}`);
    done.push(n);
  });
  // The work that had room at once runs.
  await Promise.resolve();
  t.is(done.length, 3);
  for (let last = 3; done.length < 10; last = done.length) {
    await turn();
    t.true(done.length - last <= 3, `${done.length - last} in one turn`);
  }
  await Promise.all(all);
});

test('without a queue nobody waits', (t) => {
  const turns = new FairTurns(1);
  t.is(turns.turn('a'), undefined);
  t.true(turns.turn('b') instanceof Promise);
});

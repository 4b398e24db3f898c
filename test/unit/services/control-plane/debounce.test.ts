import test from 'ava';
import { Debounce } from '../../../../services/control-plane/debounce.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

function debounced(): { clock: FakeClock; debounce: Debounce; runs: number[] } {
  const clock = new FakeClock();
  const runs: number[] = [];
  const debounce = new Debounce({ quietMs: 100, maxMs: 1_000 }, clock, (waited) => {
    runs.push(waited);
    return Promise.resolve();
  });
  return { clock, debounce, runs };
}

test('it runs once nothing was reported for the quiet time', async (t) => {
  const { clock, debounce, runs } = debounced();
  debounce.report();
  await clock.advance(60);
  debounce.report();
  await clock.advance(60);
  t.deepEqual(runs, []);
  await clock.advance(40);
  t.deepEqual(runs, [160]);
  await clock.advance(60_000);
  t.is(runs.length, 1);
});

test('under steady reports it runs at the longest time', async (t) => {
  const { clock, debounce, runs } = debounced();
  for (let step = 0; step < 50; step += 1) {
    debounce.report();
    await clock.advance(50);
  }
  t.deepEqual(runs, [1_000, 1_000]);
});

test('a report begins anew after a run', async (t) => {
  const { clock, debounce, runs } = debounced();
  debounce.report();
  await clock.advance(100);
  debounce.report();
  await clock.advance(100);
  t.deepEqual(runs, [100, 100]);
});

test('stopped, it forgets', async (t) => {
  const { clock, debounce, runs } = debounced();
  debounce.report();
  debounce.stop();
  await clock.advance(1_000);
  t.deepEqual(runs, []);
  t.is(clock.pending, 0);
});

test('what is reported during a run waits for its end, and then runs', async (t) => {
  const clock = new FakeClock();
  const runs: PromiseWithResolvers<void>[] = [];
  const debounce = new Debounce({ quietMs: 100, maxMs: 1_000 }, clock, () => {
    const run = Promise.withResolvers<void>();
    runs.push(run);
    return run.promise;
  });
  debounce.report();
  await clock.advance(100);
  debounce.report();
  await clock.advance(5_000);
  t.is(runs.length, 1);
  runs[0]?.resolve();
  await clock.advance(0);
  t.is(runs.length, 2);
});

import { spawnSync } from 'node:child_process';
import { mock } from 'node:test';
import { promisify } from 'node:util';
import test from 'ava';
import { afterInput, pause, systemClock } from '../../../../lib/clock/clock.ts';
import { socketPair } from '../../../support/socket-pair.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

test.serial('a delay longer than a timer of Node can hold is waited for to its end', (t) => {
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => mock.timers.reset());
  let fired = 0;
  systemClock.after(60 * DAY_MS, () => (fired += 1));
  systemClock.after(Infinity, () => t.fail('there is no end of infinity'));
  const cancelled = systemClock.after(60 * DAY_MS, () => t.fail('it was cancelled'));
  // The mocked timers of one part begin at the end of the hour in which the part before ended.
  const hours = (count: number): void => {
    for (let hour = 0; hour < count; hour += 1) mock.timers.tick(HOUR_MS);
  };
  hours(60 * 24 - 1);
  t.is(fired, 0);
  cancelled.cancel();
  hours(5);
  t.is(fired, 1);
});

test('a pause ends early without an error, and hides no other', async (t) => {
  const ending = new AbortController();
  const paused = pause(systemClock, HOUR_MS, ending.signal);
  ending.abort(new Error('the end'));
  await t.notThrowsAsync(paused);
  await t.notThrowsAsync(pause(systemClock, HOUR_MS, ending.signal));
  const broken = { ...systemClock, sleep: () => Promise.reject(new Error('broken')) };
  await t.throwsAsync(pause(broken, 1, new AbortController().signal), { message: 'broken' });
});

test.serial(
  'input that came while the thread was held up is read before silence is judged',
  async (t) => {
    const { near, far } = await socketPair(t);
    const order: string[] = [];
    near.resume().on('data', () => order.push('input'));
    const judged = new Promise<void>((resolve) => {
      afterInput(systemClock, 20, () => {
        order.push('silence');
        resolve();
      });
    });
    const alive = setInterval(() => {}, 1_000);
    t.teardown(() => clearInterval(alive));
    await promisify(far.write.bind(far))('x');
    // The event loop is blocked while this runs, and the timer is due at its end.
    spawnSync('sleep', ['0.1']);
    await judged;
    t.deepEqual(order, ['input', 'silence']);

    afterInput(systemClock, 0, () => order.push('cancelled')).cancel();
    await new Promise((resolve) => void setTimeout(resolve, 5));
    t.is(order.length, 2);
  },
);

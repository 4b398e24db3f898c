import test from 'ava';
import { AbandonBudget } from '../../../../lib/hbone/abandon-budget.ts';
import {
  ABANDONED_REQUESTS_BURST,
  ABANDONED_REQUESTS_PER_SECOND,
} from '../../../../lib/hbone/limits.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

test('a burst is allowed, then as many as the rate refills', async (t) => {
  const clock = new FakeClock();
  const budget = new AbandonBudget(clock);
  for (let n = 0; n < ABANDONED_REQUESTS_BURST; n += 1) t.true(budget.spend());
  t.false(budget.spend());
  await clock.advance(2_000);
  // One was overdrawn.
  for (let n = 1; n < 2 * ABANDONED_REQUESTS_PER_SECOND; n += 1) t.true(budget.spend());
  t.false(budget.spend());
});

test('a long quiet time saves up no more than a burst', async (t) => {
  const clock = new FakeClock();
  const budget = new AbandonBudget(clock);
  await clock.advance(3_600_000);
  for (let n = 0; n < ABANDONED_REQUESTS_BURST; n += 1) t.true(budget.spend());
  t.false(budget.spend());
});

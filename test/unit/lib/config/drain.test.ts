import test from 'ava';
import { drainDeadlineMs } from '../../../../lib/config/drain.ts';

test('the drain deadline is derived from the grace period as upstream does', (t) => {
  const deadline = (explicit: number | null, grace: number | null): number =>
    drainDeadlineMs({
      CONNECTION_TERMINATION_DEADLINE: explicit,
      TERMINATION_GRACE_PERIOD_SECONDS: grace,
    });
  t.is(deadline(null, null), 5_000);
  t.is(deadline(7_000, 30), 7_000);
  t.is(deadline(null, 30), 25_000);
  t.is(deadline(null, 10), 9_000);
  t.is(deadline(null, 1), 1_000);
});

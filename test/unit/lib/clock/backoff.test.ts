import test from 'ava';
import { Backoff } from '../../../../lib/clock/backoff.ts';

test('delays double up to the cap and start over after a reset', (t) => {
  const backoff = new Backoff({ baseMs: 100, maxMs: 500, jitter: 0 });
  t.deepEqual(
    [backoff.next(), backoff.next(), backoff.next(), backoff.next()],
    [100, 200, 400, 500],
  );
  t.is(backoff.attempt, 4);
  backoff.reset();
  t.is(backoff.next(), 100);
});

test('jitter varies a delay by its fraction either way', (t) => {
  t.is(new Backoff({ baseMs: 100, maxMs: 100, jitter: 0.2 }, () => 0).next(), 80);
  t.is(
    Math.round(new Backoff({ baseMs: 100, maxMs: 100, jitter: 0.2 }, () => 0.999_999).next()),
    120,
  );
});

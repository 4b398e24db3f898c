import test from 'ava';
import { TokenBucket } from '../../../../lib/async/token-bucket.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

function spent(bucket: TokenBucket, tries: number): number {
  return Array.from({ length: tries }, () => bucket.spend()).filter(Boolean).length;
}

test('a burst is allowed, then as many as the rate refills, whoever tried meanwhile', async (t) => {
  const clock = new FakeClock();
  const bucket = new TokenBucket(clock, { burst: 30, perSecond: 10 });
  t.is(spent(bucket, 1_000), 30);
  await clock.advance(2_000);
  t.is(spent(bucket, 1_000), 20);
  await clock.advance(50);
  t.is(spent(bucket, 1), 0);
  await clock.advance(50);
  t.is(spent(bucket, 2), 1);
});

test('a long quiet time, or much that is earned, saves up no more than a burst', async (t) => {
  const clock = new FakeClock();
  const bucket = new TokenBucket(clock, { burst: 30, perSecond: 10 });
  await clock.advance(3_600_000);
  t.is(spent(bucket, 100), 30);
  bucket.earn(2.5);
  t.is(spent(bucket, 100), 2);
  bucket.earn(1_000);
  t.is(spent(bucket, 100), 30);
});

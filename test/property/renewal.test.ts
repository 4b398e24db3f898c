import test from 'ava';
import * as fc from 'fast-check';
import { MIN_RENEWAL_DELAY_MS, renewalDelayMs } from '../../lib/identity/renewal.ts';

const anyLife = fc.integer({ min: 1, max: 10 * 365 * 86_400_000 });
const anyRandom = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

test('renewal lies between 45 and 55 % of the time left, whatever the random number', (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 12_000, max: 3e11 }), anyRandom, (life, random) => {
      const delay = renewalDelayMs(1e12, 1e12 + life, random);
      t.true(delay >= life * 0.45 - 1e-3 && delay <= life * 0.55 + 1e-3);
    }),
  );
});

test('renewal is never sooner than the floor, however short or overdue the certificate', (t) => {
  fc.assert(
    fc.property(fc.integer({ min: -1e9, max: 1e9 }), anyRandom, (life, random) => {
      t.true(renewalDelayMs(1e12, 1e12 + life, random) >= MIN_RENEWAL_DELAY_MS);
    }),
  );
});

test('backdating plays no part: only the time left at receipt counts', (t) => {
  fc.assert(
    fc.property(anyLife, anyRandom, fc.integer({ min: 0, max: 1e12 }), (life, random, at) => {
      t.is(renewalDelayMs(at, at + life, random), renewalDelayMs(0, life, random));
    }),
  );
});

test('a 60 s certificate is renewed around 30 s, a day after about twelve hours', (t) => {
  t.is(renewalDelayMs(0, 60_000, 0.5), 30_000);
  t.is(renewalDelayMs(0, 86_400_000, 0), 0.45 * 86_400_000);
});

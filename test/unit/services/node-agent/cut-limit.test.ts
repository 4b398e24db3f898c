import test from 'ava';
import { CutLimit } from '../../../../services/node-agent/cut-limit.ts';

function limitAt(): { limit: CutLimit; clock: { atMs: number; monotonic(): number } } {
  const clock = {
    atMs: 1_000,
    monotonic() {
      return this.atMs;
    },
  };
  return { limit: new CutLimit(clock), clock };
}

test('a tenth of the pods may be cut off within a minute, and one on a small node', (t) => {
  for (const [pods, most] of [
    [0, 1],
    [1, 1],
    [19, 1],
    [20, 2],
    [110, 11],
  ] as const) {
    const { limit } = limitAt();
    const allowed = Array.from({ length: pods + 2 }, () => limit.allow(pods)).filter(Boolean);
    t.is(allowed.length, most, `${pods} pods`);
  }
});

test('a cut counts for a minute, and a refusal does not count', (t) => {
  const { limit, clock } = limitAt();
  t.true(limit.allow(20));
  clock.atMs += 30_000;
  t.true(limit.allow(20));
  t.false(limit.allow(20));
  clock.atMs += 29_999;
  t.false(limit.allow(20));
  clock.atMs += 1;
  t.true(limit.allow(20));
  t.false(limit.allow(20));
});

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

/** Asks for pods that did not ask before. */
function asker(limit: CutLimit): (pods: number, cut?: readonly string[]) => boolean {
  let asked = 0;
  return (pods, cut = []) => limit.allow(`u-${(asked += 1)}`, { pods, cut });
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
    const allow = asker(limit);
    const allowed = Array.from({ length: pods + 2 }, () => allow(pods)).filter(Boolean);
    t.is(allowed.length, most, `${pods} pods`);
  }
});

test('a cut counts for a minute, and a refusal does not count', (t) => {
  const { limit, clock } = limitAt();
  const allow = asker(limit);
  t.true(allow(20));
  clock.atMs += 30_000;
  t.true(allow(20));
  t.false(allow(20));
  clock.atMs += 29_999;
  t.false(allow(20));
  clock.atMs += 1;
  t.true(allow(20));
  t.false(allow(20));
});

test('pods that are cut off count as long as they are, each once', (t) => {
  const { limit, clock } = limitAt();
  const allow = asker(limit);
  t.true(limit.allow('u-0', { pods: 20, cut: [] }));
  t.true(limit.allow('u-0', { pods: 20, cut: ['u-0'] }));
  clock.atMs += 60_000;
  t.false(allow(20, ['u-0', 'other']));
  t.true(limit.allow('other', { pods: 20, cut: ['u-0', 'other'] }));
  t.true(allow(30, ['u-0', 'other']));
  t.false(allow(30, ['u-0', 'other']));
});

test('a cut of the agent before counts from the moment at which it was found', (t) => {
  const { limit, clock } = limitAt();
  const allow = asker(limit);
  limit.count('found');
  t.false(allow(10));
  clock.atMs += 60_000;
  t.true(allow(10));
});

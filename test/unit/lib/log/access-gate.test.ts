import test from 'ava';
import { AccessGate } from '../../../../lib/log/access-gate.ts';
import {
  MAX_ACCESS_NAMESPACES,
  formatAccessRules,
  isSampled,
  parseAccessRules,
} from '../../../../lib/log/access-rules.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

test('rules are read and written', (t) => {
  for (const text of ['all', 'errors', '10%', 'all,demo=0.5%,kube-system=errors']) {
    t.is(formatAccessRules(parseAccessRules(text)), text);
  }
  t.is(formatAccessRules(parseAccessRules('b=all, a=12.125% ,100%')), 'all,a=12.125%,b=all');
});

test('what is no rule is refused with its place', (t) => {
  for (const text of ['', 'some', 'demo=', 'Demo=all', '101%', '-1%', 'a=b=all', 'all,,errors']) {
    t.throws(() => parseAccessRules(text), { message: /is neither all/ }, text);
  }
});

test('rules name only so many namespaces', (t) => {
  const rules = (count: number): string =>
    Array.from({ length: count }, (_, index) => `n${index}=errors`).join(',');
  t.notThrows(() => parseAccessRules(rules(MAX_ACCESS_NAMESPACES)));
  t.throws(() => parseAccessRules(rules(MAX_ACCESS_NAMESPACES + 1)), { message: /at most/ });
});

test('a trace is sampled alike wherever it is looked at, and the share holds', (t) => {
  const ids = Array.from({ length: 1_000 }, (_, index) =>
    Math.floor((index / 1_000) * 2 ** 32)
      .toString(16)
      .padStart(8, '0')
      .padEnd(32, '7'),
  );
  t.is(ids.filter((id) => isSampled(0.25, id)).length, 250);
  t.true(ids.every((id) => !isSampled(0.25, id) || isSampled(0.5, id)));
  t.false(isSampled(0, null));
  t.true(isSampled(1, null));
});

test('namespaces have rules of their own; what is left out is counted', (t) => {
  const gate = new AccessGate({ rules: 'all,quiet=errors,half=50%', linesPerSecond: 0 });
  t.true(gate.admits('demo', null));
  t.false(gate.admits('quiet', null));
  t.false(gate.admits('half', 'f'.repeat(32)));
  t.true(gate.admits('half', '0'.repeat(32)));
  t.deepEqual(gate.suppressed, { filter: 1, sample: 1, rate: 0, denials: 0 });
  gate.change({ rules: 'errors', linesPerSecond: 0 });
  t.false(gate.admits('demo', null));
  t.throws(() => gate.change({ rules: 'loud', linesPerSecond: 0 }));
  t.false(gate.admits('demo', null));
});

test('no more lines than the rate, a second of them at once', async (t) => {
  const clock = new FakeClock();
  const gate = new AccessGate({ rules: 'all', linesPerSecond: 2 }, clock);
  const admitted = (): number => [1, 2, 3, 4].filter(() => gate.admits('demo', null)).length;
  t.is(admitted(), 2);
  t.is(admitted(), 0);
  await clock.advance(500);
  t.is(admitted(), 1);
  await clock.advance(60_000);
  t.is(admitted(), 2);
  t.is(gate.suppressed.rate, 11);
});

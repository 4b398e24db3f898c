import test from 'ava';
import { drainDeadlineMs } from '../../../../lib/actor/host-config.ts';
import { ReadinessGate } from '../../../../lib/actor/readiness.ts';

test('a gate is open when every blocker is released, and tells each change', (t) => {
  const gate = new ReadinessGate();
  const seen: string[][] = [];
  gate.onChange((pending) => seen.push([...pending]));
  const xds = gate.block('xds');
  const ca = gate.block('ca');
  xds();
  xds();
  ca();
  t.deepEqual(seen, [['xds'], ['ca', 'xds'], ['ca'], []]);
});

test('the drain deadline is derived from the grace period as upstream does', (t) => {
  t.is(drainDeadlineMs(null, null), 5_000);
  t.is(drainDeadlineMs(7_000, 30), 7_000);
  t.is(drainDeadlineMs(null, 30), 25_000);
  t.is(drainDeadlineMs(null, 10), 9_000);
  t.is(drainDeadlineMs(null, 1), 1_000);
});

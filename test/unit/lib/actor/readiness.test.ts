import test from 'ava';
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

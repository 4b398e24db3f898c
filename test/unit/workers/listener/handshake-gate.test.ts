import test from 'ava';
import { HandshakeGate } from '../../../../workers/listener/handshake-gate.ts';
import {
  MAX_PENDING_HANDSHAKES,
  MAX_PENDING_HANDSHAKES_PER_SOURCE,
} from '../../../../workers/listener/limits.ts';
import { connectionsPerPod } from '../../../../workers/listener/thread.ts';

test('one address with too many handshakes does not lock the others out', (t) => {
  const gate = new HandshakeGate();
  for (let n = 0; n < MAX_PENDING_HANDSHAKES_PER_SOURCE; n += 1) t.true(gate.enter('10.0.0.1'));
  t.false(gate.enter('10.0.0.1'));
  t.true(gate.enter('10.0.0.2'));
  gate.leave('10.0.0.1');
  t.true(gate.enter('10.0.0.1'));
  t.false(gate.enter('10.0.0.1'));
});

test('all addresses together are bounded, and what was left is free again', (t) => {
  const gate = new HandshakeGate();
  const sources = Array.from(
    { length: MAX_PENDING_HANDSHAKES },
    (_, n) => `10.0.${n >> 8}.${n & 255}`,
  );
  for (const source of sources) t.true(gate.enter(source));
  t.false(gate.enter('10.9.9.9'));
  for (const source of sources) gate.leave(source);
  t.true(gate.enter('10.9.9.9'));
});

test('one pod takes at most half of the descriptors of the process', (t) => {
  t.is(connectionsPerPod(20_000), 5_000);
  t.is(connectionsPerPod(1_048_576), 50_000);
});

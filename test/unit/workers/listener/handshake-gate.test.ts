import test from 'ava';
import {
  NodeBudget,
  MAX_BUDGET_THREADS,
  newBudgetMemory,
} from '../../../../lib/net/node-budget.ts';
import {
  Admission,
  admissionLimits,
  connectionsPerPod,
  nodeConnections,
} from '../../../../workers/listener/limits/admission.ts';
import { HandshakeGate } from '../../../../workers/listener/limits/handshake-gate.ts';
import {
  MAX_PENDING_HANDSHAKES,
  MAX_PENDING_HANDSHAKES_PER_SOURCE,
} from '../../../../workers/listener/limits.ts';

const PLENTY = { connections: 1_000_000, handshakes: 1_000_000 };

function budget(limits = PLENTY, memory = newBudgetMemory(), thread = 0): NodeBudget {
  return new NodeBudget(memory, thread, limits);
}

test('one address with too many handshakes does not lock the others out', (t) => {
  const gate = new HandshakeGate(budget());
  for (let n = 0; n < MAX_PENDING_HANDSHAKES_PER_SOURCE; n += 1) t.is(gate.enter('10.0.0.1'), null);
  t.is(gate.enter('10.0.0.1'), 'peer-handshake-limit');
  t.is(gate.enter('10.0.0.2'), null);
  gate.leave('10.0.0.1');
  t.is(gate.enter('10.0.0.1'), null);
  t.is(gate.enter('10.0.0.1'), 'peer-handshake-limit');
});

test('all addresses together are bounded, and what was left is free again', (t) => {
  const gate = new HandshakeGate(budget());
  const sources = Array.from(
    { length: MAX_PENDING_HANDSHAKES },
    (_, n) => `10.0.${n >> 8}.${n & 255}`,
  );
  for (const source of sources) t.is(gate.enter(source), null);
  t.is(gate.enter('10.9.9.9'), 'handshake-limit');
  for (const source of sources) gate.leave(source);
  t.is(gate.enter('10.9.9.9'), null);
});

test('the handshakes of all pods and threads together are bounded', (t) => {
  const memory = newBudgetMemory();
  const limits = { connections: 10, handshakes: 3 };
  const one = budget(limits, memory, 0);
  const other = budget(limits, memory, 1);
  const gates = [new HandshakeGate(one), new HandshakeGate(one), new HandshakeGate(other)];
  for (const gate of gates) t.is(gate.enter('10.0.0.1'), null);
  t.is(gates[2]?.enter('10.0.0.2'), 'node-handshake-limit');
  t.is(one.used('handshakes'), 3);
  t.is(one.own('handshakes'), 2);
  gates[0]?.leave('10.0.0.1');
  t.is(gates[2]?.enter('10.0.0.2'), null);
});

test('what a dead thread held is free once another takes its place', (t) => {
  const memory = newBudgetMemory();
  const limits = { connections: 2, handshakes: 2 };
  const dead = budget(limits, memory, 7);
  t.true(dead.take('connections') && dead.take('connections'));
  const other = budget(limits, memory, 3);
  t.false(other.take('connections'));
  budget(limits, memory, 7);
  t.true(other.take('connections'));
});

test('what threads take counts for all of them, whatever their numbers and whenever they come', (t) => {
  const memory = newBudgetMemory();
  const limits = { connections: 3, handshakes: 3 };
  const first = budget(limits, memory, 0);
  t.true(first.take('connections') && first.take('handshakes'));
  const last = budget(limits, memory, MAX_BUDGET_THREADS - 1);
  t.true(last.take('connections'));
  const middle = budget(limits, memory, 9);
  t.true(middle.take('connections'));
  for (const each of [first, middle, last]) {
    t.is(each.used('connections'), 3);
    t.is(each.used('handshakes'), 1);
    t.false(each.take('connections'));
  }
  last.give('connections');
  t.true(first.take('connections'));
});

test('a pod, a client of it and the process each have their share of connections', (t) => {
  const node = budget({ connections: 6, handshakes: 1 });
  const pod = new Admission({ perPod: 4, perPeer: 2 }, node);
  t.is(pod.enter('10.0.0.1'), null);
  t.is(pod.enter('10.0.0.1'), null);
  t.is(pod.enter('10.0.0.1'), 'peer-connection-limit');
  t.is(pod.enter('10.0.0.2'), null);
  t.is(pod.enter(null), null);
  t.is(pod.enter(null), 'connection-limit');
  const second = new Admission({ perPod: 4, perPeer: 4 }, node);
  t.is(second.enter(null), null);
  t.is(second.enter(null), null);
  t.is(second.enter(null), 'node-connection-limit');
  pod.leave('10.0.0.1');
  t.is(second.enter(null), null);
  t.is(pod.count, 3);
  t.is(node.used('connections'), 6);
});

test('without settings the descriptors of the process decide', (t) => {
  t.is(connectionsPerPod(20_000), 5_000);
  t.is(connectionsPerPod(1_048_576), 50_000);
  t.is(nodeConnections(20_512, false), 10_000);
  t.is(nodeConnections(30_512, true), 10_000);
  const unset = {
    connections: null,
    handshakes: 1,
    bytes: 268_435_456,
    bytesPerPod: 67_108_864,
    connectionsPerPod: null,
  };
  t.deepEqual(admissionLimits({ limits: unset }, 20_000), { perPod: 5_000, perPeer: 2_500 });
  const set = { ...unset, connectionsPerPod: 11 };
  t.deepEqual(admissionLimits({ limits: set }, 20_000), { perPod: 11, perPeer: 6 });
});

test('each of the threads that serve a pod has its part of the limits', (t) => {
  const gate = new HandshakeGate(budget());
  const part = MAX_PENDING_HANDSHAKES_PER_SOURCE / 4;
  for (let n = 0; n < part; n += 1) t.is(gate.enter('10.0.0.1', 4), null);
  t.is(gate.enter('10.0.0.1', 4), 'peer-handshake-limit');
  for (let n = part; n < MAX_PENDING_HANDSHAKES / 4; n += 1) {
    t.is(gate.enter(`10.1.${n >> 8}.${n & 255}`, 4), null);
  }
  t.is(gate.enter('10.0.0.2', 4), 'handshake-limit');
  // The other threads have left, so this one has the whole budget.
  t.is(gate.enter('10.0.0.2'), null);

  const admission = new Admission({ perPod: 8, perPeer: 4 }, budget());
  admission.divide(2);
  for (let n = 0; n < 2; n += 1) t.is(admission.enter('10.0.0.1'), null);
  t.is(admission.enter('10.0.0.1'), 'peer-connection-limit');
  for (let n = 0; n < 2; n += 1) t.is(admission.enter(null), null);
  t.is(admission.enter('10.0.0.2'), 'connection-limit');
  admission.divide(1);
  t.is(admission.enter('10.0.0.1'), null);
});

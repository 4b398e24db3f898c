import { PassThrough } from 'node:stream';
import test from 'ava';
import { HeldBytes, PRESSURE_CHECK_MS, QueuedBytes } from '../../../../lib/net/held-bytes.ts';
import { NodeBudget, clearBudget, newBudgetMemory } from '../../../../lib/net/node-budget.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const KIB = 1_024;
const MIB = 1_024 * KIB;
const PLENTY = { connections: 1_000, handshakes: 1_000 };

interface Thread {
  readonly held: HeldBytes;
  readonly clock: FakeClock;
}

function thread(
  limits: { process: number; perPod: number },
  memory = newBudgetMemory(),
  number = 0,
): Thread {
  const clock = new FakeClock();
  const budget = new NodeBudget(memory, number, PLENTY);
  return { held: new HeldBytes(budget, limits, clock), clock };
}

test('a pod is pressed above half of its limit, and eased only when it has fallen well below', async (t) => {
  const { held, clock } = thread({ process: 64 * MIB, perPod: 8 * MIB });
  const pod = held.open();
  const other = held.open();
  let turns = 0;
  pod.onPressure(() => {
    turns += 1;
  });
  pod.charge(4 * MIB);
  t.false(pod.pressed);
  pod.charge(1);
  t.true(pod.pressed);
  t.false(other.pressed);
  t.deepEqual(held.pressure, { now: 1, total: 1 });
  pod.charge(-MIB / 2);
  await clock.advance(PRESSURE_CHECK_MS);
  t.true(pod.pressed);
  pod.charge(-MIB / 2 - 1);
  t.true(pod.pressed);
  await clock.advance(PRESSURE_CHECK_MS);
  t.false(pod.pressed);
  t.is(turns, 2);
  t.deepEqual(held.pressure, { now: 0, total: 1 });
  t.is(held.bytes, 3 * MIB);
});

test('threads that serve a pod have a part of its limit each', (t) => {
  const { held } = thread({ process: 64 * MIB, perPod: 4 * MIB });
  const pod = held.open();
  pod.divide(2);
  t.is(pod.headroom, MIB);
  pod.charge(MIB + 1);
  t.true(pod.pressed);
  t.false(pod.full);
  pod.charge(2 * MIB);
  t.false(pod.full, 'what waits to be sent brings nothing more');
  pod.receive(2 * MIB);
  t.true(pod.full);
});

test('at its limit a pod ends debtors, the largest first, and no more than it must', (t) => {
  const { held } = thread({ process: 64 * MIB, perPod: 8 * MIB });
  const pod = held.open();
  const ended: string[] = [];
  const debtor = (name: string, bytes: number): (() => void) => {
    let holds = bytes;
    pod.receive(bytes);
    return pod.owe({
      holds: () => holds,
      evict: () => {
        ended.push(name);
        pod.receive(-holds);
        holds = 0;
      },
    });
  };
  debtor('small', MIB);
  debtor('as small as may be', 65_536);
  debtor('larger', 3 * MIB);
  const paid = debtor('largest, but paid', 4 * MIB - 65_536);
  pod.relieve();
  t.deepEqual(ended, []);
  paid();
  pod.receive(1);
  pod.relieve();
  t.deepEqual(ended, ['larger']);
  pod.receive(3 * MIB);
  pod.relieve();
  t.deepEqual(ended, ['larger', 'small']);
  pod.receive(2 * MIB);
  pod.relieve();
  t.true(pod.full);
});

test('what an ended debtor gives back later ends no other meanwhile', (t) => {
  const { held } = thread({ process: 64 * MIB, perPod: 8 * MIB });
  const pod = held.open();
  const ended: number[] = [];
  const releases: (() => void)[] = [];
  for (const number of [1, 2, 3]) {
    let holds = 3 * MIB - number;
    pod.receive(holds);
    pod.owe({
      holds: () => holds,
      evict: () => {
        ended.push(number);
        releases.push(() => {
          pod.receive(-holds);
          holds = 0;
        });
      },
    });
  }
  pod.relieve();
  pod.relieve();
  t.deepEqual(ended, [1]);
  releases.forEach((release) => release());
  pod.receive(MIB);
  pod.relieve();
  t.deepEqual(ended, [1]);
  pod.receive(MIB + 6);
  pod.relieve();
  pod.relieve();
  t.deepEqual(ended, [1, 2]);
});

test('a process that holds too much presses those above an equal part, on whichever thread', async (t) => {
  const memory = newBudgetMemory();
  const limits = { process: 8 * MIB, perPod: 16 * MIB };
  const first = thread(limits, memory, 0);
  const second = thread(limits, memory, 1);
  const greedy = first.held.open();
  const small = first.held.open();
  const late = second.held.open();
  // Three accounts: 2.67 MiB each.
  greedy.charge(5 * MIB);
  small.charge(MIB);
  t.false(greedy.pressed);
  late.charge(2 * MIB + MIB / 2);
  t.false(late.pressed);
  small.charge(MIB / 2);
  t.false(small.pressed);
  greedy.charge(MIB / 2);
  t.true(greedy.pressed);
  t.false(small.pressed);
  t.false(late.pressed);
  // The other thread finds its own pod above its share only when the pod holds more.
  late.charge(MIB);
  t.true(late.pressed);
  late.close();
  greedy.charge(-3 * MIB);
  await first.clock.advance(PRESSURE_CHECK_MS);
  t.false(greedy.pressed);
  greedy.charge(4 * MIB);
  t.false(greedy.pressed);
});

test('what a closed pod or a lost thread held is free again', (t) => {
  const memory = newBudgetMemory();
  const limits = { process: 8 * MIB, perPod: 16 * MIB };
  const lost = thread(limits, memory, 0);
  const { held } = thread(limits, memory, 1);
  lost.held.open().charge(8 * MIB);
  const pod = held.open();
  pod.charge(5 * MIB);
  t.true(pod.pressed);
  pod.close();
  t.is(held.bytes, 0);
  t.deepEqual(held.pressure, { now: 0, total: 1 });
  pod.charge(MIB);
  t.is(held.bytes, 0);
  clearBudget(memory, 0);
  const next = held.open();
  next.charge(5 * MIB);
  t.false(next.pressed);
});

test('a queue is charged from the mark on at which it tells of room, and given back with it', (t) => {
  const to = new PassThrough({ writableHighWaterMark: 10, readableHighWaterMark: 1 });
  let charged = 0;
  const queued = new QueuedBytes(to, {
    charge: (bytes) => {
      charged += bytes;
    },
  });
  to.cork();
  to.write(Buffer.alloc(9));
  queued.update();
  t.is(charged, 0);
  to.write(Buffer.alloc(9));
  queued.update();
  t.is(charged, 18);
  to.write(Buffer.alloc(9));
  queued.update();
  t.is(charged, 27);
  queued.close();
  t.is(charged, 0);
});

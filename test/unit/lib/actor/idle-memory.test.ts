import test from 'ava';
import { pino } from 'pino';
import { MAX_COLLECTED_BYTES, MAX_STEPPED_BYTES } from '../../../../lib/actor/collector.ts';
import { IdleMemory } from '../../../../lib/actor/idle-memory.ts';
import type { Memory } from '../../../../lib/actor/idle-memory.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

/** Longer than any wait of the test. */
const LONG_MS = 60_000;
const MIB = 1 << 20;
/** Numeric log levels. */
const WARN = 40;
const DEBUG = 20;
/** The steps that a pool thread does. */
const REST = ['free', 'pages'];
/** The steps of one round, in order. */
const ROUND = ['collect', ...REST];
/** The only step of a process that stays idle. */
const IDLE = ['free'];
/** Repeats a round: an idle process does two after work, the second of which drops the code of the first one's time. */
const twice = (round: readonly string[]): readonly string[] => [...round, ...round];

/** Makes a fixture; `fail` names the step that fails. */
function fixture(fail: string | null = null): {
  load: { cpuMs: number; heapBytes: number; idleShare: number };
  ticks: { known: boolean };
  idle: IdleMemory;
  clock: FakeClock;
  calls: string[];
  lines: string[];
} {
  const load = { cpuMs: 1_000, heapBytes: 40 * MIB, idleShare: 1 };
  const ticks = { idle: 0, all: 0, known: true };
  const clock = new FakeClock();
  const calls: string[] = [];
  const lines: string[] = [];
  const done = (part: string): void => {
    calls.push(part);
    if (part === fail) throw new Error(`no ${part}`);
  };
  const doneLater = async (part: string): Promise<void> => done(part);
  const memory: Memory = {
    cpuMs: () => load.cpuMs,
    processors: () => {
      ticks.all += 100;
      ticks.idle += 100 * load.idleShare;
      return ticks.known ? { ...ticks } : null;
    },
    check: () => undefined,
    heapBytes: () => load.heapBytes,
    collect: () => done('collect'),
    collectInSteps: () => done('collect in steps'),
    releaseFree: () => doneLater('free'),
    releasePages: async () => {
      await doneLater('pages');
      return 4_096;
    },
  };
  const log = pino({ level: 'debug' }, { write: (line) => void lines.push(line) });
  return { load, ticks, idle: new IdleMemory({ clock, log, memory }), clock, calls, lines };
}

test('memory is given back twice after the start, the garbage first', async (t) => {
  const { idle, clock, calls, lines } = fixture();
  idle.ready();
  t.deepEqual(calls, []);
  await clock.advance(LONG_MS);
  t.deepEqual(calls, twice(ROUND));
  t.regex(lines.join(''), /"programBytes":4096.*host\.memory-released/);
  idle.ready();
  await clock.advance(LONG_MS);
  t.deepEqual(calls, [...twice(ROUND), ...IDLE]);
});

test('an idle process waits for a busy machine, for a minute and a half at most', async (t) => {
  const { idle, load, clock, calls } = fixture();
  load.idleShare = 0.1;
  idle.ready();
  await clock.advance(LONG_MS);
  t.deepEqual(calls, []);
  load.idleShare = 0.9;
  await clock.advance(LONG_MS);
  t.deepEqual(calls, twice(ROUND));
  calls.length = 0;
  load.idleShare = 0.1;
  load.cpuMs += 500;
  await clock.advance(LONG_MS);
  t.false(calls.includes('collect'));
  await clock.advance(LONG_MS);
  t.is(calls.filter((call) => call === 'collect').length, 1);
});

test('a process that cannot see the machine takes it for idle', async (t) => {
  const { idle, load, ticks, clock, calls } = fixture();
  load.idleShare = 0;
  ticks.known = false;
  idle.ready();
  await clock.advance(LONG_MS);
  t.deepEqual(calls, twice(ROUND));
});

test('what C heaps have free is given back every minute while the process stays idle', async (t) => {
  const { idle, clock, calls } = fixture();
  idle.ready();
  await clock.advance(LONG_MS);
  calls.length = 0;
  await clock.advance(5 * LONG_MS);
  t.deepEqual(calls, Array.from({ length: 5 }, () => IDLE).flat());
});

test('a process that waits to be ready gives memory back, too, and as often only', async (t) => {
  const { idle, clock, calls } = fixture();
  idle.started();
  await clock.advance(LONG_MS);
  t.deepEqual(calls, ROUND);
  idle.ready();
  await clock.advance(LONG_MS);
  t.deepEqual(calls, twice(ROUND));
});

test('a process at work collects in steps what the start left, then gives back what is free until it is idle', async (t) => {
  const { idle, load, clock, calls } = fixture();
  idle.onRelease(() => calls.push('told'));
  idle.ready();
  const work = clock.every(1_000, () => (load.cpuMs += 500));
  await clock.advance(LONG_MS);
  t.is(calls.shift(), 'collect in steps');
  const rounds = calls.length / REST.length;
  t.true(rounds >= 5 && rounds <= 7, `${rounds} rounds in a minute`);
  t.deepEqual(calls, Array.from({ length: rounds }, () => REST).flat());
  work.cancel();
  calls.length = 0;
  await clock.advance(LONG_MS);
  t.deepEqual(calls, twice(['collect', 'told', ...REST]));
});

test('a process at work with a very large heap leaves also what the start left to V8', async (t) => {
  const { idle, load, clock, calls } = fixture();
  load.heapBytes = MAX_STEPPED_BYTES + 1;
  idle.ready();
  clock.every(1_000, () => (load.cpuMs += 500));
  await clock.advance(LONG_MS);
  t.deepEqual(new Set(calls), new Set(REST));
});

test('a process that does a little is collected in steps', async (t) => {
  const { idle, load, clock, calls } = fixture();
  idle.ready();
  clock.every(1_000, () => (load.cpuMs += 40));
  await clock.advance(LONG_MS);
  t.deepEqual(calls, twice(['collect in steps', ...REST]));
});

test('a large heap is collected in steps, a still larger one is left to V8', async (t) => {
  const { idle, load, clock, calls } = fixture();
  load.heapBytes = MAX_COLLECTED_BYTES + 1;
  idle.ready();
  await clock.advance(LONG_MS);
  const inSteps = twice(['collect in steps', ...REST]);
  t.deepEqual(calls, inSteps);
  load.heapBytes = MAX_COLLECTED_BYTES;
  load.cpuMs += 500;
  await clock.advance(LONG_MS);
  t.deepEqual(calls, [...inSteps, ...twice(ROUND)]);
  load.heapBytes = MAX_STEPPED_BYTES + 1;
  load.cpuMs += 500;
  await clock.advance(LONG_MS);
  t.deepEqual(calls, [...inSteps, ...twice(ROUND), ...twice(REST)]);
});

test('a heap that grows although the process is idle is collected again', async (t) => {
  const { idle, load, clock, calls } = fixture();
  idle.ready();
  await clock.advance(LONG_MS);
  calls.length = 0;
  load.heapBytes += MIB;
  await clock.advance(LONG_MS);
  t.deepEqual(calls, IDLE);
  calls.length = 0;
  load.heapBytes += MIB;
  await clock.advance(LONG_MS);
  t.deepEqual(calls, ROUND);
  await clock.advance(LONG_MS);
  t.deepEqual(calls, [...ROUND, ...IDLE]);
});

test('who asked is told each time, and what it does then is no work', async (t) => {
  const { idle, load, clock, calls } = fixture();
  idle.onRelease(() => {
    calls.push('told');
    // Garbage collection of the threads is not work that leaves memory to release.
    load.cpuMs += 500;
  });
  idle.ready();
  await clock.advance(3 * LONG_MS);
  load.cpuMs += 500;
  await clock.advance(LONG_MS);
  const told = ['collect', 'told', 'free', 'pages'];
  t.deepEqual(calls, [...twice(told), ...IDLE, ...IDLE, ...twice(told)]);
});

test('work that comes and goes makes no more than two rounds a minute', async (t) => {
  const { idle, load, clock, calls } = fixture();
  idle.ready();
  // Alternates between one busy second and nine idle ones.
  clock.every(10_000, () => (load.cpuMs += 500));
  await clock.advance(10 * LONG_MS);
  const rounds = calls.filter((part) => part === 'collect').length;
  t.true(rounds > 1 && rounds <= 20, `${rounds} rounds in ten minutes`);
});

test('a process that cannot do a part does the others, and warns once', async (t) => {
  for (const part of ROUND) {
    const { idle, load, clock, calls, lines } = fixture(part);
    idle.ready();
    await clock.advance(LONG_MS);
    load.cpuMs += 500;
    await clock.advance(LONG_MS);
    t.deepEqual(calls, [...twice(ROUND), ...twice(ROUND)]);
    const failures = lines.filter((line) => line.includes('host.memory-kept'));
    t.deepEqual(
      failures.map((line) => JSON.parse(line).level),
      [WARN, DEBUG, DEBUG, DEBUG],
    );
    t.true(failures.every((line) => line.includes(`"error":"no ${part}"`)));
  }
});

test('a process that ends gives nothing back any more', async (t) => {
  const { idle, clock, calls } = fixture();
  idle.started();
  idle.ready();
  idle.cancel();
  await clock.advance(LONG_MS);
  t.deepEqual(calls, []);
  const { idle: waiting, clock: other, calls: none } = fixture();
  waiting.started();
  waiting.cancel();
  await other.advance(LONG_MS);
  t.deepEqual(none, []);
});

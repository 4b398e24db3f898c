import test from 'ava';
import { pino } from 'pino';
import { IdleMemory } from '../../../../lib/actor/idle-memory.ts';
import type { Release } from '../../../../lib/actor/idle-memory.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

/** Longer than what is waited for. */
const LONG_MS = 60_000;

function fixture(fail: string | null = null): {
  memory: IdleMemory;
  clock: FakeClock;
  calls: string[];
  lines: string[];
} {
  const clock = new FakeClock();
  const calls: string[] = [];
  const lines: string[] = [];
  const release: Release = {
    collect: () => void calls.push('collect'),
    releasePages: () => {
      calls.push('pages');
      if (fail !== null) throw new Error(fail);
      return 4_096;
    },
  };
  const log = pino({ level: 'debug' }, { write: (line) => void lines.push(line) });
  return { memory: new IdleMemory({ clock, log, release }), clock, calls, lines };
}

test('memory is given back once, some time after ready, the garbage first', async (t) => {
  const { memory, clock, calls, lines } = fixture();
  memory.ready();
  t.deepEqual(calls, []);
  await clock.advance(LONG_MS);
  t.deepEqual(calls, ['collect', 'pages']);
  t.regex(lines.join(''), /"programBytes":4096.*host\.memory-given-back/);
  memory.ready();
  await clock.advance(LONG_MS);
  t.deepEqual(calls, ['collect', 'pages']);
});

test('a process that cannot read its page table says so and goes on', async (t) => {
  const { memory, clock, lines } = fixture('open: EACCES');
  memory.ready();
  await clock.advance(LONG_MS);
  t.regex(lines.join(''), /"error":"open: EACCES".*host\.memory-kept/);
});

test('a process that ends gives nothing back any more', async (t) => {
  const { memory, clock, calls } = fixture();
  memory.cancel();
  memory.ready();
  memory.cancel();
  await clock.advance(LONG_MS);
  t.deepEqual(calls, []);
});

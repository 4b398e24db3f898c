import test from 'ava';
import { AccessGate, OPEN_ACCESS } from '../../../../lib/log/access-gate.ts';
import { DenialLines } from '../../../../lib/log/denial-lines.ts';
import {
  ALL_DENIAL_LINES_BURST,
  DENIAL_LINES_BURST,
  DENIAL_LINES_PER_SECOND,
} from '../../../../lib/log/limits.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

/** Makes the pods of one thread. */
function thread() {
  const clock = new FakeClock();
  const gate = new AccessGate(OPEN_ACCESS, clock);
  const lines: Record<string, unknown>[] = [];
  const log = createLogger(
    { actor: 'node-proxy', level: 'info' },
    { write: (line) => lines.push(JSON.parse(line) as Record<string, unknown>) },
  );
  return { clock, gate, lines, pod: (uid: string) => new DenialLines(uid, log, gate) };
}

const denial = { source: 'a', destination: 'b', direction: 'inbound', error: 'x' } as const;

/** Denies `count` times and returns how many denials have a line. */
function deny(of: DenialLines, count: number): number {
  return Array.from({ length: count }, () => of.write(denial)).filter((line) => line !== null)
    .length;
}

// spec: observability.md §3.1
test('an early denial is one warning', (t) => {
  const { lines, pod } = thread();
  pod('uid-1').write(denial);
  t.is(lines[0]?.['message'], 'connection failed');
  t.is(lines[0]?.['level'], 'warn');
  const fields = Object.keys(lines[0] ?? {});
  const own = ['src.addr', 'dst.addr', 'direction', 'error'];
  t.deepEqual(fields, ['level', 'time', 'actor', 'scope', ...own, 'message']);
});

test('early denials get only so many lines a second; what is left out is said and counted', async (t) => {
  const { clock, gate, lines, pod } = thread();
  const noisy = pod('uid-1');
  t.is(deny(noisy, DENIAL_LINES_BURST + 7), DENIAL_LINES_BURST);
  t.is(lines.length, DENIAL_LINES_BURST);
  // The suppressed lines are reported although no further denial comes.
  await clock.advance(1_000);
  const leftOut = { message: 'access.denials-left-out', level: 'warn', podUid: 'uid-1' };
  t.like(lines.at(-1), { ...leftOut, lines: 7 });
  t.is(deny(noisy, 1_000), DENIAL_LINES_PER_SECOND);
  t.is(deny(noisy, 1_000), 0);
  await clock.advance(1_000);
  t.like(lines.at(-1), { ...leftOut, lines: 2_000 - DENIAL_LINES_PER_SECOND });
  t.is(lines.length, DENIAL_LINES_BURST + DENIAL_LINES_PER_SECOND + 2);
  t.is(gate.suppressed.denials, 2_007 - DENIAL_LINES_PER_SECOND);
  await clock.advance(60_000);
  t.is(lines.length, DENIAL_LINES_BURST + DENIAL_LINES_PER_SECOND + 2);
});

test('a pod that refuses many hides the refusals of no other', async (t) => {
  const { clock, lines, pod } = thread();
  const [noisy, quiet] = [pod('noisy'), pod('quiet')];
  deny(noisy, 50_000);
  t.is(deny(quiet, DENIAL_LINES_BURST + 1), DENIAL_LINES_BURST);
  await clock.advance(1_000);
  const said = lines.filter(({ message }) => message === 'access.denials-left-out');
  t.deepEqual(
    said.map(({ podUid, lines: count }) => [podUid, count]),
    [
      ['noisy', 50_000 - DENIAL_LINES_BURST],
      ['quiet', 1],
    ],
  );
});

test('all pods of a thread together have a bound, too', (t) => {
  const { gate, pod } = thread();
  const pods = Array.from({ length: 11 }, (_, index) => pod(`uid-${index}`));
  const written = pods.map((one) => deny(one, DENIAL_LINES_BURST));
  t.deepEqual(written, [...Array.from({ length: 10 }, () => DENIAL_LINES_BURST), 0]);
  t.is(ALL_DENIAL_LINES_BURST, 10 * DENIAL_LINES_BURST);
  t.is(gate.suppressed.denials, DENIAL_LINES_BURST);
});

test('a pod that ends says at once what was left out, and leaves no timer', (t) => {
  const { clock, lines, pod } = thread();
  const ending = pod('uid-1');
  deny(ending, DENIAL_LINES_BURST + 3);
  ending.flush();
  ending.flush();
  t.like(lines.at(-1), { message: 'access.denials-left-out', podUid: 'uid-1', lines: 3 });
  t.is(lines.length, DENIAL_LINES_BURST + 1);
  t.is(clock.pending, 0);
});

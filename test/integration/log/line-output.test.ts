import { execFileSync } from 'node:child_process';
import { closeSync, constants, openSync, readFileSync, readSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { LineOutput } from '../../../lib/log/line-output.ts';
import {
  GATHER_BYTES,
  GATHER_MS,
  MAX_GATHERED_BYTES,
  MAX_HELD_BYTES,
} from '../../../lib/log/limits.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeScratch } from '../../support/leftovers.ts';
import type { LineTask } from '../../support/line-output.worker.ts';
import { until } from '../../support/until.ts';

const SCRIPT = new URL('../../support/line-output.worker.ts', import.meta.url);

async function scratch(t: ExecutionContext): Promise<string> {
  const dir = await makeScratch('lines');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

function open(t: ExecutionContext, path: string, flags: string | number): number {
  const fd = openSync(path, flags);
  t.teardown(() => closeSync(fd));
  return fd;
}

/** Makes a log file and a function that reads it. */
async function logFile(t: ExecutionContext) {
  const path = join(await scratch(t), 'log');
  return { path, fd: open(t, path, 'a'), text: () => readFileSync(path, 'utf8') };
}

/** Makes a pipe whose reader reads everything available on demand. */
async function pipe(t: ExecutionContext) {
  const path = join(await scratch(t), 'pipe');
  execFileSync('mkfifo', [path]);
  const reader = open(t, path, constants.O_RDONLY | constants.O_NONBLOCK);
  const fd = open(t, path, constants.O_WRONLY);
  const buffer = Buffer.alloc(1024 * 1024);
  const read = (): string => {
    try {
      return buffer.toString('utf8', 0, readSync(reader, buffer));
    } catch {
      return '';
    }
  };
  return { fd, read };
}

test('lines wait for each other, and for no longer than is said', async (t) => {
  const { fd, text } = await logFile(t);
  const clock = new FakeClock();
  const output = new LineOutput(fd, clock);
  output.gather('a\n');
  output.gather('b\n');
  t.is(text(), '');
  await clock.advance(GATHER_MS);
  t.is(text(), 'a\nb\n');
});

test('what does not wait goes out at once, after what was gathered', async (t) => {
  const { fd, text } = await logFile(t);
  const output = new LineOutput(fd, new FakeClock());
  output.gather('a\n');
  output.write('failed\n');
  t.is(text(), 'a\nfailed\n');
  output.gather('ü😀\n');
  output.flush();
  t.is(text(), 'a\nfailed\nü😀\n');
});

test('lines are written when there are enough of them', async (t) => {
  const { fd, text } = await logFile(t);
  const output = new LineOutput(fd, new FakeClock());
  const line = `${'x'.repeat(999)}\n`;
  const enough = Math.ceil(GATHER_BYTES / line.length);
  for (let index = 1; index < enough; index += 1) output.gather(line);
  t.is(text(), '');
  output.gather(line);
  t.is(text(), line.repeat(enough));
});

test('lines of every length stay as they are', async (t) => {
  const { fd, text } = await logFile(t);
  const output = new LineOutput(fd, new FakeClock());
  const lines = [2_040, 2_043, 2_044, 2_045, 2_046, 2_047, 2_048, 5_000].flatMap((length) =>
    ['x', 'ü', '😀'].map((character) => `${'x'.repeat(length)}${character}\n`),
  );
  for (const line of lines) output.gather(line);
  output.flush();
  t.is(text(), lines.join(''));
});

test('a reader that is slow holds nobody up, gets all that finds room, and failures find more', async (t) => {
  const { fd, read } = await pipe(t);
  const clock = new FakeClock();
  const output = new LineOutput(fd, clock);
  const told: number[] = [];
  output.onDropped = (lines) => told.push(lines);
  const padding = 'x'.repeat(990);
  let sent = 0;
  while (output.dropped === 0) output.gather(`${sent++} ${padding}\n`);
  const kept = sent - 1;
  t.true(kept * 1_000 > MAX_GATHERED_BYTES);
  output.write('failed\n');
  t.is(output.dropped, 1);
  t.deepEqual(told, []);
  let got = '';
  for (let text = read(); text !== ''; text = read()) {
    got += text;
    await clock.advance(GATHER_MS);
  }
  const lines = got.split('\n').slice(0, -1);
  t.is(lines.length, kept + 1);
  t.is(lines.at(-1), 'failed');
  t.true(lines.slice(0, -1).every((line, index) => line === `${index} ${padding}`));
  t.deepEqual(told, [1]);
  output.gather('again\n');
  await clock.advance(GATHER_MS);
  t.is(read(), 'again\n');
});

test('lines of failures are bounded too', async (t) => {
  const { fd } = await pipe(t);
  const output = new LineOutput(fd, new FakeClock());
  const line = `${'x'.repeat(9_999)}\n`;
  let sent = 0;
  for (; output.dropped === 0; sent += 1) output.write(line);
  t.true(sent * line.length < MAX_HELD_BYTES + 200_000);
});

test('a reader that is gone ends nothing', async (t) => {
  const path = join(await scratch(t), 'pipe');
  execFileSync('mkfifo', [path]);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const output = new LineOutput(open(t, path, constants.O_WRONLY), new FakeClock());
  closeSync(reader);
  output.write('nobody reads this\n');
  t.is(output.dropped, 0);
});

test('lines of several threads never tear each other', async (t) => {
  const { fd, read } = await pipe(t);
  const lines = 3_000;
  const names = ['a', 'b', 'c'];
  const workers = names.map((name, index) => {
    const task: LineTask = { fd, name, lines, bytes: 150 * (index + 1), end: 'flush' };
    return new Worker(SCRIPT, { workerData: task });
  });
  t.teardown(async () => {
    for (const worker of workers) await worker.terminate();
  });
  let got = '';
  const count = (): number => got.split('\n').length - 1;
  await until(
    () => {
      got += read();
      return count() === names.length * lines;
    },
    { what: 'all lines' },
  );
  for (const [index, name] of names.entries()) {
    const own = got.split('\n').filter((line) => line.startsWith(name));
    const padding = 'x'.repeat(150 * (index + 1));
    t.is(own.length, lines);
    t.true(own.every((line, number) => line === `${name} ${number} ${padding}`));
  }
});

test('what was gathered is written however its thread ends', async (t) => {
  for (const end of ['wait', 'exit', 'throw'] as const) {
    const { fd, text } = await logFile(t);
    const task: LineTask = { fd, name: end, lines: 3, bytes: 1, end };
    const worker = new Worker(SCRIPT, { workerData: task });
    const ended = Promise.withResolvers<void>();
    worker.on('error', () => undefined);
    worker.on('exit', () => ended.resolve());
    if (end === 'wait') worker.on('message', () => void worker.terminate());
    await ended.promise;
    t.is(text(), `${end} 0 x\n${end} 1 x\n${end} 2 x\n`);
  }
});

test('what was gathered is written when the process exits, to sockets and pipes', (t) => {
  const task: LineTask = { fd: 1, name: 'a', lines: 200, bytes: 100, end: 'wait' };
  const command = [process.execPath, SCRIPT.pathname, JSON.stringify(task)] as const;
  const expected = Array.from({ length: 200 }, (_, index) => `a ${index} ${'x'.repeat(100)}\n`);
  const toSocket = execFileSync(command[0], command.slice(1));
  t.is(toSocket.toString(), expected.join(''));
  const toPipe = execFileSync('sh', ['-c', '"$0" "$@" | cat', ...command]);
  t.is(toPipe.toString(), expected.join(''));
});

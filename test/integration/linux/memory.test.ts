import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import test from 'ava';

const run = promisify(execFile);
const memory = new URL('../../../lib/linux/process.ts', import.meta.url).pathname;
const garbage = new URL('../../support/garbage.worker.ts', import.meta.url).pathname;
const oldGarbage = new URL('../../support/old-garbage.worker.ts', import.meta.url).pathname;
const collecting = new URL('../../support/collecting-threads.worker.ts', import.meta.url).pathname;
const addon = new URL('../../../lib/linux/native.ts', import.meta.url).pathname;

/** Offset of unused padding in the addon's ELF header; the process itself changes it in memory. */
const PADDING_OFFSET = 9;
const CHANGED = 0x5a;

/** A program that must still work after it has released its pages. Runs in a process of its own. */
const PROGRAM = `
  import { createHash } from 'node:crypto';
  import { Worker } from 'node:worker_threads';
  import { once } from 'node:events';
  import { openSync, readFileSync, readSync, writeSync } from 'node:fs';
  import { native } from ${JSON.stringify(addon)};
  import { releaseProgramPages } from ${JSON.stringify(memory)};
  const files = () => Number(/^RssFile:\\s+(\\d+)/m.exec(readFileSync('/proc/self/status', 'utf8'))[1]);
  const digest = () => createHash('sha256').update('x'.repeat(1e5)).digest('hex');
  const first = digest();
  native();
  const start = /^([0-9a-f]+)-.* 00000000 .*weft\\.node$/m.exec(readFileSync('/proc/self/maps', 'utf8'))[1];
  const padding = Number.parseInt(start, 16) + ${PADDING_OFFSET};
  const space = openSync('/proc/self/mem', 'r+');
  writeSync(space, Buffer.from([${CHANGED}]), 0, 1, padding);
  const before = files();
  const released = await releaseProgramPages();
  const after = files();
  const byte = Buffer.alloc(1);
  readSync(space, byte, 0, 1, padding);
  const worker = new Worker("import { parentPort } from 'node:worker_threads'; import { gzipSync } from 'node:zlib'; parentPort.postMessage(gzipSync('x').length)", { eval: true });
  const [length] = await once(worker, 'message');
  console.log(JSON.stringify({ before, after, released, same: first === digest(), length, kept: byte[0] }));
`;

let ran: Promise<{ readonly stdout: string }> | null = null;

/** Returns the program's words; it runs once for all tests. */
async function result(): Promise<Record<string, unknown>> {
  ran ??= run(process.execPath, ['--input-type=module', '--eval', PROGRAM]);
  return JSON.parse((await ran).stdout);
}

test('pages of programs are given back, and what runs finds them again', async (t) => {
  const { before, after, released, same, length } = await result();
  t.true(Number(released) > 0);
  t.true(Number(after) < Number(before), `${String(before)} kB before, ${String(after)} kB after`);
  t.true(same);
  t.true(Number(length) > 0);
});

test('a page of code that was changed, as a debugger does, is kept', async (t) => {
  const { kept, same } = await result();
  t.is(kept, CHANGED);
  t.true(same);
});

test('free memory of malloc and the young garbage of a thread are given back', async (t) => {
  const { stdout } = await run(process.execPath, ['--expose-gc', garbage]);
  const { free, young } = JSON.parse(stdout) as Record<string, number>;
  t.true(Number(free) > 0, stdout);
  t.true(Number(young) > 0, stdout);
});

test('a thread that saves memory keeps less old garbage', async (t) => {
  const { stdout } = await run(process.execPath, [oldGarbage]);
  const { usual, saving } = JSON.parse(stdout) as Record<string, number>;
  t.true(Number(saving) < Number(usual), stdout);
});

test('a thread collects its garbage while others collect theirs', async (t) => {
  await t.notThrowsAsync(run(process.execPath, ['--expose-gc', collecting]));
});

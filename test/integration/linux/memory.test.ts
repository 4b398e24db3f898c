import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import test from 'ava';

const run = promisify(execFile);
const memory = new URL('../../../lib/linux/memory.ts', import.meta.url).pathname;

/** Runs in a process of its own, which computes as before after it has given its pages back. */
const PROGRAM = `
  import { createHash } from 'node:crypto';
  import { Worker } from 'node:worker_threads';
  import { once } from 'node:events';
  import { readFileSync } from 'node:fs';
  import { releaseProgramPages } from ${JSON.stringify(memory)};
  const files = () => Number(/^RssFile:\\s+(\\d+)/m.exec(readFileSync('/proc/self/status', 'utf8'))[1]);
  const digest = () => createHash('sha256').update('x'.repeat(1e5)).digest('hex');
  const first = digest();
  const before = files();
  const released = releaseProgramPages();
  const after = files();
  const worker = new Worker("import { parentPort } from 'node:worker_threads'; import { gzipSync } from 'node:zlib'; parentPort.postMessage(gzipSync('x').length)", { eval: true });
  const [length] = await once(worker, 'message');
  console.log(JSON.stringify({ before, after, released, same: first === digest(), length }));
`;

async function result(...flags: string[]): Promise<Record<string, unknown>> {
  const { stdout } = await run(process.execPath, [
    ...flags,
    '--input-type=module',
    '--eval',
    PROGRAM,
  ]);
  return JSON.parse(stdout);
}

test('pages of programs are given back, and what runs finds them again', async (t) => {
  const { before, after, released, same, length } = await result();
  t.true(Number(released) > 0);
  t.true(Number(after) < Number(before), `${String(before)} kB before, ${String(after)} kB after`);
  t.true(same);
  t.true(Number(length) > 0);
});

test('code that was moved out of its file stays where it is', async (t) => {
  // Where the kernel has no huge pages to give, this is the case above.
  const { same, length } = await result('--use-largepages=silent');
  t.true(same);
  t.true(Number(length) > 0);
});

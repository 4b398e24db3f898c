import { appendFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { LogFollower } from '../../../../services/cli/log-follower.ts';
import { limitLog } from '../../../../services/local-mesh/log-files.ts';
import { makeScratch } from '../../../support/leftovers.ts';

async function follow(t: ExecutionContext) {
  const folder = await makeScratch('logs');
  t.teardown(() => rm(folder, { recursive: true }));
  const path = join(folder, 'a.log');
  const seen: string[] = [];
  const follower = new LogFollower(path, (lines) => {
    seen.push(lines.toString());
    return Promise.resolve();
  });
  return { path, follower, text: () => seen.join('') };
}

test('lines come whole, also when they are written in parts', async (t) => {
  const { path, follower, text } = await follow(t);
  await follower.poll();
  await writeFile(path, 'one\ntw');
  await follower.poll();
  t.is(text(), 'one\n');
  await appendFile(path, 'o\nthree');
  await follower.poll();
  t.is(text(), 'one\ntwo\n');
  await follower.flush();
  t.is(text(), 'one\ntwo\nthree\n');
});

test('nothing is lost or told twice when the log is cut', async (t) => {
  const { path, follower, text } = await follow(t);
  await writeFile(path, 'one\n');
  await follower.poll();
  await appendFile(path, 'two\n');
  t.true(await limitLog(path, 4));
  await appendFile(path, '3\n');
  await follower.poll();
  await follower.poll();
  t.is(text(), 'one\ntwo\n3\n');
});

test('a file that is replaced is read from its start', async (t) => {
  const { path, follower, text } = await follow(t);
  await writeFile(path, 'one\n');
  await follower.poll();
  const { rename } = await import('node:fs/promises');
  await writeFile(`${path}.new`, 'longer than before\n');
  await rename(`${path}.new`, path);
  await follower.poll();
  t.is(text(), 'one\nlonger than before\n');
});

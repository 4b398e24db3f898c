/** Runs the short form of the load on a small mesh, so that its programs keep working. Its figures are not judged here. */
import { execFile } from 'node:child_process';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { makeScratch } from '../../support/leftovers.ts';
import { netnsTest } from '../../support/netns-test.ts';

const run = promisify(execFile);
const root = new URL('../../..', import.meta.url).pathname;

interface Point {
  readonly held: number;
  readonly lost: number;
  readonly refused: number;
  readonly newPerSecond: number;
  readonly gbits: number;
}

netnsTest(
  'a small load is carried: nothing refused, nothing lost, a table and a picture',
  async (t) => {
    t.timeout(290_000);
    const scratch = await makeScratch('load');
    t.teardown(() => rm(scratch, { recursive: true }));
    const svg = join(scratch, 'load.svg');
    const size = ['--pods', '2', '--connections', '100', '--rate', '40', '--duration', '2'];
    const args = ['test/load/run.ts', ...size, '--threads', '1', '--svg', svg, '-o', 'json'];
    const { stdout } = await run(process.execPath, args, { cwd: root, timeout: 280_000 });
    const { points } = JSON.parse(stdout) as { points: Point[] };
    t.is(points.length, 1);
    const [point] = points;
    t.is(point?.held, 100);
    t.is(point?.lost, 0);
    t.is(point?.refused, 0);
    t.true((point?.newPerSecond ?? 0) > 0 && (point?.gbits ?? 0) > 0);
    t.regex(await readFile(svg, 'utf8'), /^<svg [^]*<\/svg>\n$/);
  },
);

netnsTest('a size that is no number is named', async (t) => {
  const args = ['test/load/run.ts', '--pods', 'many'];
  const error = await t.throwsAsync<Error & { code: number; stderr: string }>(
    run(process.execPath, args, { cwd: root }),
  );
  t.is(error?.code, 2);
  t.regex(error?.stderr ?? '', /--pods must be a whole number of at least 1, got many/);
});

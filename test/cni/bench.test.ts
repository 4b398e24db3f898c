/** Runs the benchmark of ADD small, so that its programs keep working. Its figures are not judged here. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import test from 'ava';
import { netnsTest } from '../support/netns-test.ts';
import { cniPrograms } from './support/programs.ts';

const BENCH = new URL('../bench/cni-add.ts', import.meta.url).pathname;
const BUSY_MACHINE_MS = 240_000;

const programs = await cniPrograms();
if ('missing' in programs) {
  process.stdout.write(`SKIPPED cni bench: ${programs.missing}\n`);
  test.skip(`the small benchmark of ADD: ${programs.missing}`, () => undefined);
} else {
  netnsTest('the small benchmark of ADD measures every row', async (t) => {
    t.timeout(2 * BUSY_MACHINE_MS);
    const args = [BENCH, '--pods', '3', '--rounds', '1'];
    const { stdout } = await promisify(execFile)(process.execPath, args, {
      timeout: BUSY_MACHINE_MS,
    });
    t.log(stdout);
    t.is(stdout.match(/^(?:portmap|loopback|bridge|weft-cni)/gm)?.length, 9);
    t.false(/NaN|Infinity|undefined/.test(stdout), 'every figure is a number');
  });
}

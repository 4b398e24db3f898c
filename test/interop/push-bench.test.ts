/** The benchmark of pushes still runs: its Go clients are sent everything, and none is lost. No time is judged. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import test from 'ava';
import { buildPushClient } from '../bench/pushes/client.ts';

const run = promisify(execFile);
const program = await buildPushClient();

if ('missing' in program) test.skip(`the benchmark of pushes: ${program.missing}`, () => {});
else {
  test('the benchmark of pushes loses no client', async (t) => {
    const script = new URL('../bench/pushes/run.ts', import.meta.url).pathname;
    const options = ['--clients', '4', '--workloads', '2000', '--probes', '1'];
    const { stdout } = await run(process.execPath, [script, ...options]);
    t.notRegex(stdout, /NOT DONE/);
    t.regex(stdout, /first sync of all .* lost 0\n/);
    t.regex(stdout, /full push of 2100 resources to 4 /);
    t.regex(stdout, / lost +0\n/);
    t.is(stdout.match(/arrivals, lost +\d+, 0\n/g)?.length, 2);
    t.regex(stdout, /ratio of bytes a second/);
  });
}

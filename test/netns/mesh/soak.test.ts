/** Runs the short forms of the soaks: twenty seconds instead of the ten minutes of `npm run soak`, with longer pauses. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { netnsTest } from '../../support/netns-test.ts';

const run = promisify(execFile);
const root = new URL('../../..', import.meta.url).pathname;

netnsTest(
  'counters, descriptors and memory stand after twenty seconds of everything',
  async (t) => {
    t.timeout(290_000);
    const args = ['test/soak/run.ts', '--seconds', '20', '--pause', '50'];
    const outcome = await run(process.execPath, args, {
      cwd: root,
      timeout: 280_000,
    }).catch((error: { stdout: string; stderr: string }) => error);
    t.log(outcome.stdout);
    t.regex(outcome.stdout, /^soak ok: /, outcome.stderr);
    t.regex(outcome.stdout, /[1-9]\d* pods came and went/);
  },
);

netnsTest('a node agent holds nothing after a hundred enrolments', async (t) => {
  t.timeout(290_000);
  const args = ['test/soak/run.ts', '--pods', '20', '--enrolments', '100'];
  const outcome = await run(process.execPath, args, { cwd: root, timeout: 280_000 }).catch(
    (error: { stdout: string; stderr: string }) => error,
  );
  t.log(outcome.stdout);
  t.regex(outcome.stdout, /^soak ok: 20 pods .* 100 more /, outcome.stderr);
});

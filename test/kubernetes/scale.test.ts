/** The run at scale still works: a whole control plane on an API server of its own, small and short. No time is judged. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import test from 'ava';
import { buildPushClient } from '../bench/pushes/client.ts';
import { kubernetesPrograms } from './support/programs.ts';

const run = promisify(execFile);
const missing = [await kubernetesPrograms(), await buildPushClient()].flatMap((built) =>
  'missing' in built ? [built.missing] : [],
);

if (missing.length > 0) {
  process.stderr.write(`\nSKIPPED the run at scale: ${missing.join('; ')}\n`);
  test.skip(`the run at scale: ${missing.join('; ')}`, () => {});
} else {
  test('the run at scale loses no client, and every change of its churn is taken', async (t) => {
    const script = new URL('../scale/run.ts', import.meta.url).pathname;
    const options = '--pods 400 --clients 3 --seconds 5 --rate 20 --idle 0'.split(' ');
    const { stdout } = await run(process.execPath, [script, ...options]);
    t.notRegex(stdout, /NOT DONE|NaN/);
    t.regex(stdout, /first sync of 3 clients .* lost 0\n/);
    for (const what of ['one pod', 'a Service of 80 pods', 'root STRICT']) {
      t.regex(stdout, new RegExp(`${what}: written, .* lost 0\n`));
    }
    t.regex(stdout, /churn of 5 s +[1-9]\d* changes, 0 failed/);
    t.regex(stdout, /clients lost +0\n/);
  });
}

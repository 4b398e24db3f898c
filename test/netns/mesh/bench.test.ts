/** Runs the short form of the benchmark, so that its programs keep working. Its figures are not judged here. */
import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { promisify } from 'node:util';
import test from 'ava';
import { netnsUnavailable } from '../../support/netns-kit.ts';

const run = promisify(execFile);
const root = new URL('../../..', import.meta.url).pathname;

const unavailable = netnsUnavailable() ?? missingTools();
if (unavailable !== null) {
  process.stderr.write(`\nSKIPPED, NOT RUN: the short benchmark: ${unavailable}\n`);
}

function missingTools(): string | null {
  const folders = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];
  const missing = ['haproxy', 'iperf3', 'wrk', 'openssl', 'gcc', 'curl'].filter(
    (tool) => !folders.some((folder) => isProgram(`${folder}/${tool}`)),
  );
  return missing.length === 0
    ? null
    : `${missing.join(', ')} missing: run sh infra/setup.sh --bench`;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    // The program is missing or not executable; both mean the same here.
    return false;
  }
}

const benchTest = unavailable === null ? test.serial : test.serial.skip;

benchTest('the short benchmark measures every peer', async (t) => {
  t.timeout(290_000);
  const { stdout } = await run(process.execPath, ['test/bench/run.ts', '--short'], {
    cwd: root,
    timeout: 280_000,
  });
  t.log(stdout);
  for (const peer of [
    'direct',
    'haproxy',
    'http2',
    'in-pod',
    'tls',
    'splice',
    'captured',
    'weft',
  ]) {
    t.true(stdout.includes(peer), `${peer} is in the table`);
  }
  t.false(/NaN|Infinity|undefined/.test(stdout), 'every figure is a number');
});

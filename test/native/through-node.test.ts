/**
 * Runs tests of connections through Node with an addon under ASan and UBSan. The sanitizers write their reports into a folder, since
 * whatever starts a process again would hide how it ended. `SANITIZED=all` runs more files, for a quarter of an hour.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { processEnvironment } from '../../lib/config/env.ts';
import { buildTimeLeft } from '../support/build-time.ts';
import { netnsUnavailable } from '../support/netns-kit.ts';
import { ADDON_SCRIPT, SANITIZED_FOLDER } from './support/addon-paths.ts';
import { ADDRESSES, TooSlow, missing } from './support/build.ts';

const run = promisify(execFile);
const AVA = new URL('../../node_modules/.bin/ava', import.meta.url).pathname;
const PRELOADED = new URL('support/sanitized-addon.ts', import.meta.url);
/** Defects of programs that inherit the sanitizers. */
const SUPPRESSIONS = new URL('support/asan.supp', import.meta.url).pathname;
const BUILD_TIMEOUT_MS = 240_000;
/** An own copy of UBSan's runtime: the shared one takes its folder of reports for that of ASan, and says everything on standard error. */
const OWN_UBSAN = ['-static-libubsan', '-Wl,--exclude-libs,ALL'];
/** For one file; a quiet machine needs a tenth. */
const LIMIT_MS = 300_000;
/** The end of what a failed file has said. */
const SHOWN_CHARACTERS = 4_000;
const NETNS = 'ava.netns.config.js';
const MAX_OUTPUT_BYTES = 16 * 1_024 * 1_024;

/** A configuration of AVA with files that it runs. */
type Files = readonly (readonly [config: string, files: readonly string[]])[];

/** Tunnels, their ends and bounds, sockets of namespaces, and whole proxies between namespaces. */
const FILES: Files = [
  ['ava.config.js', ['contract/hbone-engine']],
  [
    'ava.integration.config.js',
    ['integration/carry-blocked', 'integration/hbone-bytes-hostile', 'integration/hbone-ends'],
  ],
  [NETNS, ['netns/sockets', 'netns/abnormal-ends']],
];
/** Those of `SANITIZED=all`. */
const MORE_FILES: Files = [
  [
    'ava.integration.config.js',
    [
      'integration/carry-rotations',
      'integration/hbone-bytes',
      'integration/hbone-framing-hostile',
      'integration/linux/queued-connections',
      'integration/linux/seqpacket',
      'integration/linux/splice-pump',
    ],
  ],
  [
    NETNS,
    [
      'netns/double-tunnel',
      'netns/hostile-peers',
      'netns/listener',
      'netns/listener-hostile',
      'netns/node-agent',
      'netns/node-proxy',
      'netns/same-node',
    ],
  ],
];

/** Builds the addon with sanitizers; returns why there is none, null when there is. */
async function buildAddon(): Promise<string | null> {
  const reason = await missing(ADDRESSES);
  if (reason !== null) return reason;
  try {
    await run('sh', [ADDON_SCRIPT, SANITIZED_FOLDER, '-g', ...ADDRESSES.flags, ...OWN_UBSAN], {
      timeout: buildTimeLeft(BUILD_TIMEOUT_MS),
    });
    return null;
  } catch (error) {
    if (error instanceof Error && 'killed' in error && error.killed === true) {
      return new TooSlow().message;
    }
    throw error;
  }
}

/** The environment that loads the sanitizers into Node and all that it starts. Leaks are what Node leaves to the end of a process. */
async function sanitizing(reports: string): Promise<NodeJS.ProcessEnv> {
  const log = `log_path=${join(reports, 'report')}`;
  const { stdout } = await run(ADDRESSES.compiler, ['-print-file-name=libasan.so']);
  return {
    ...processEnvironment(),
    LD_PRELOAD: stdout.trim(),
    ASAN_OPTIONS: `detect_leaks=0:suppressions="${SUPPRESSIONS}":${log}`,
    UBSAN_OPTIONS: `print_stacktrace=1:${log}`,
    NODE_OPTIONS: `--import=${PRELOADED.href}?${encodeURIComponent(reports)}`,
  };
}

/** Ends with what AVA said. Processes of their own, because a sanitizer ends the whole process. */
function runFile(config: string, file: string, env: NodeJS.ProcessEnv): Promise<string> {
  const args = [AVA, '--config', config, '--no-worker-threads', '--tap', `test/${file}.test.ts`];
  return run(process.execPath, args, {
    env,
    timeout: LIMIT_MS,
    maxBuffer: MAX_OUTPUT_BYTES,
  }).then(
    ({ stdout }) => stdout,
    (error: unknown) => `not ok: ${String(error)}\n${outputOf(error)}`,
  );
}

function outputOf(error: unknown): string {
  return error instanceof Error && 'stdout' in error ? String(error.stdout) : '';
}

const reason = await buildAddon();
if (reason !== null) process.stdout.write(`${reason}\n`);
const all = processEnvironment()['SANITIZED'] === 'all';
for (const [config, files] of [...FILES, ...(all ? MORE_FILES : [])]) {
  const skips = reason !== null || (config === NETNS && netnsUnavailable() !== null);
  const declare = skips ? test.serial.skip : test.serial;
  for (const file of files) {
    declare(`under sanitizers in Node: ${file}`, async (t) => {
      t.timeout(LIMIT_MS);
      const reports = await mkdtemp(join(tmpdir(), 'weft-sanitized-'));
      t.teardown(() => rm(reports, { recursive: true }));
      const said = await runFile(config, file, await sanitizing(reports));
      const names = await readdir(reports);
      for (const name of names.filter((one) => one.startsWith('report'))) {
        t.fail((await readFile(join(reports, name))).toString());
      }
      t.regex(said, /^# fail 0$/m, said.slice(-SHOWN_CHARACTERS));
      t.regex(said, /^# pass [1-9]/m, said.slice(-SHOWN_CHARACTERS));
      t.true(names.includes('loaded'), 'no process has loaded the addon with sanitizers');
    });
  }
}

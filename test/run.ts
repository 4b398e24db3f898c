/**
 * Runs `npm test`: the checks, then the tiers of tests one after another. Prints what failed in full and ends
 * with one line, `N passed, N failed, N skipped`, added up from the runners' own counts. Arguments name tiers.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { statfsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { processEnvironment } from '../lib/config/env.ts';
import type { Environment } from '../lib/config/env.ts';
import { BUILDS_END_AT } from './support/build-time.ts';

interface Tier {
  readonly name: string;
  readonly config: string;
  /** Which of the configuration's files; all without. */
  readonly files?: string;
  /** True for what runs only when it is named: it needs more than a clean machine has. */
  readonly wider?: boolean;
  /** Seconds after which what is not built is not waited for; its tests are skipped. */
  readonly buildSeconds?: number;
  /** Seconds after which the tier is broken, whatever it still does. */
  readonly limitSeconds: number;
}

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
}

/**
 * The lanes run side by side, the tiers of a lane one after another: most tests wait, and each brings what it needs. A lane
 * does not wait for the other, so no core is idle while one long file ends.
 */
const LANES: readonly (readonly Tier[])[] = [
  [
    { name: 'unit', config: 'ava.config.js', limitSeconds: 600 },
    { name: 'integration', config: 'ava.integration.config.js', limitSeconds: 900 },
  ],
  [
    // They wait the most.
    {
      name: 'mesh',
      config: 'ava.netns.config.js',
      files: 'test/netns/mesh/*.test.ts',
      limitSeconds: 1_200,
    },
    {
      name: 'netns',
      config: 'ava.netns.config.js',
      files: 'test/netns/*.test.ts',
      limitSeconds: 1_200,
    },
  ],
  [
    {
      name: 'interop',
      config: 'ava.interop.config.js',
      buildSeconds: 420,
      limitSeconds: 700,
      wider: true,
    },
    {
      name: 'kubernetes',
      config: 'ava.kubernetes.config.js',
      buildSeconds: 420,
      limitSeconds: 560,
      wider: true,
    },
    {
      name: 'cni',
      config: 'ava.cni.config.js',
      buildSeconds: 150,
      limitSeconds: 285,
      wider: true,
    },
    {
      name: 'docker',
      config: 'ava.docker.config.js',
      buildSeconds: 300,
      limitSeconds: 700,
      wider: true,
    },
    {
      name: 'cluster',
      config: 'ava.cluster.config.js',
      buildSeconds: 700,
      limitSeconds: 1_020,
      wider: true,
    },
    {
      name: 'native',
      config: 'ava.native.config.js',
      buildSeconds: 200,
      limitSeconds: 400,
      wider: true,
    },
  ],
];
const TIERS = LANES.flat();

const root = new URL('..', import.meta.url).pathname;
/** Each test file is a process; those after the first find the code compiled. */
const COMPILE_CACHE = join(root, '.cache/compile');
/** Where tests keep their files: some count what a process writes within a time, and a busy disk takes seconds for each flush. */
const MEMORY_DISK = '/dev/shm';
/** Room that must be there; the tests hold some 150 MB at a time. */
const MEMORY_DISK_BYTES = 1 << 30;
const say = (text: string): void => void process.stdout.write(`${text}\n`);

/** Returns the variable that has tests keep their files in memory, where the machine has room for them. */
function inMemory(): Environment {
  try {
    const { bavail, bsize } = statfsSync(MEMORY_DISK);
    return bavail * bsize >= MEMORY_DISK_BYTES ? { TMPDIR: MEMORY_DISK } : {};
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return {};
  }
}

/** How long what a killed command has started may hold its output. */
const OUTPUT_GRACE_MS = 5_000;

/** Runs a command to its end and hands its lines on; resolves with its exit code, null when it was killed. */
async function run(
  command: string,
  args: readonly string[],
  options: { readonly limitSeconds: number; readonly environment?: Environment },
  onLine: (line: string) => void,
): Promise<number | null> {
  const { limitSeconds, environment } = options;
  const child = spawn(command, [...args], {
    cwd: root,
    env: { NODE_COMPILE_CACHE: COMPILE_CACHE, ...processEnvironment(), ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  const { pid } = child;
  const stopAll = (): void => {
    if (pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    process.kill(-pid, 'SIGKILL');
  };
  const timer = setTimeout(() => {
    onLine(`# ended after its limit of ${limitSeconds} s`);
    stopAll();
  }, limitSeconds * 1_000);
  const signals = ['SIGINT', 'SIGTERM'] as const;
  for (const signal of signals) process.once(signal, stopAll);
  const readers = [child.stdout, child.stderr].map((input) => createInterface({ input }));
  const read = readers.map((reader) => once(reader.on('line', onLine), 'close'));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', resolve);
  });
  clearTimeout(timer);
  for (const signal of signals) process.off(signal, stopAll);
  // Something that left the process group may hold the other end for ever.
  const grace = setTimeout(() => {
    for (const reader of readers) reader.close();
    child.stdout.destroy();
    child.stderr.destroy();
  }, OUTPUT_GRACE_MS);
  await Promise.all(read);
  clearTimeout(grace);
  return code;
}

/** Shown of a tier that fails outside of any test. */
const LAST_LINES = 40;

/** Runs one tier under AVA's TAP reporter and counts from its closing lines. What it says is shown when it ends. */
async function runTier(tier: Tier): Promise<Counts> {
  const report = [`== ${tier.name}`];
  const counts: Counts = { passed: 0, failed: 0, skipped: 0 };
  const started = performance.now();
  const seen: Counts = { passed: 0, failed: 0, skipped: 0 };
  const lately: string[] = [];
  let summarized = false;
  let failing = false;
  // By the Node that runs this, not by the one a shebang finds.
  const ava = [
    'node_modules/.bin/ava',
    '--config',
    tier.config,
    '--tap',
    ...(tier.files === undefined ? [] : [tier.files]),
  ];
  const environment =
    tier.buildSeconds === undefined
      ? inMemory()
      : { [BUILDS_END_AT]: String(Date.now() + tier.buildSeconds * 1_000) };
  const code = await run(process.execPath, ava, { ...tier, environment }, (line) => {
    const summary = /^# (pass|fail|skip) (\d+)$/.exec(line);
    if (summary?.[1] === 'pass') counts.passed = Number(summary[2]);
    if (summary?.[1] === 'fail') counts.failed = Number(summary[2]);
    summarized ||= summary !== null;
    if (/^(not )?ok \d+/.test(line)) {
      failing = line.startsWith('not ok');
      const skipped = !failing && /# SKIP/.test(line);
      seen[failing ? 'failed' : skipped ? 'skipped' : 'passed'] += 1;
      if (skipped) report.push(`SKIPPED ${line}`);
    }
    if (failing || /^#? ?SKIPPED|^# ended/.test(line)) report.push(line);
    lately.push(line);
    if (lately.length > LAST_LINES) lately.shift();
  });
  // A tier that was ended has no closing lines; its tests count as far as it came.
  if (!summarized) Object.assign(counts, seen);
  // AVA counts a skipped test under neither pass nor fail in some versions, under pass in others.
  counts.skipped = seen.skipped;
  // Being ended, failing outside of any test, and ending without a count are failures as well, and say why.
  if ((code !== 0 && counts.failed === 0) || !summarized) {
    counts.failed += 1;
    report.push(`# ${tier.name} ended with ${code ?? 'a signal'}, last said:`, ...lately);
  }
  const seconds = Math.round((performance.now() - started) / 1_000);
  report.push(`${tier.name}: ${describe(counts)} in ${seconds} s`);
  say(report.join('\n'));
  return counts;
}

function describe(counts: Counts): string {
  return `${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`;
}

const wanted = process.argv.slice(2);
const unknown = wanted.filter(
  (name) => name !== 'check' && !TIERS.some((tier) => tier.name === name),
);
if (unknown.length > 0) {
  process.stderr.write(
    `no such tier: ${unknown.join(', ')}; there are check, ${TIERS.map((tier) => tier.name).join(', ')}\n`,
  );
  process.exit(2);
}
const chosen = (name: string, wider = false): boolean =>
  wanted.length === 0 ? !wider : wanted.includes(name);

const total: Counts = { passed: 0, failed: 0, skipped: 0 };
async function runCheck(): Promise<void> {
  if (!chosen('check')) return;
  const code = await run('sh', ['test/check.sh'], { limitSeconds: 300 }, say);
  if (code !== 0) total.failed += 1;
}

async function runLane(lane: readonly Tier[]): Promise<void> {
  for (const tier of lane.filter(({ name, wider }) => chosen(name, wider))) {
    const counts = await runTier(tier);
    total.passed += counts.passed;
    total.failed += counts.failed;
    total.skipped += counts.skipped;
  }
}

const [first = [], ...others] = LANES;
await Promise.all([runCheck().then(() => runLane(first)), ...others.map(runLane)]);
say(describe(total));
process.exitCode = total.failed === 0 ? 0 : 1;

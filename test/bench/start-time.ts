/**
 * Measures the time from each actor's start until it is ready, one after another, in a mesh of one node whose other actors run:
 * `node test/bench/start-time.ts [--rounds N]`. Also prints processor time, because other programs may use the machine.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { BenchMesh } from './lib/mesh.ts';
import { eventually, output } from './lib/process.ts';

const { values } = parseArgs({ options: { rounds: { type: 'string', default: '3' } } });
const rounds = Number(values.rounds);

const weft = new URL('../../services/cli/weft', import.meta.url).pathname;
const manifests = new URL('./manifests/compact', import.meta.url).pathname;
/** The roles, each after those it needs. */
const ROLES = [
  'ca',
  'control-plane',
  'xds-ingester',
  'policy-evaluator',
  'node-1/node-agent',
  'node-1/cert-fetcher',
  'node-1/node-proxy',
] as const;
const READY_WITHIN_MS = 60_000;
const TICKS_PER_SECOND = 100;

interface Start {
  readonly seconds: number;
  readonly processorSeconds: number;
  stop(): Promise<void>;
}

/** Reads the namespace and environment of a role from `weft env`. */
async function setting(mesh: BenchMesh, role: string) {
  const text = await mesh.weft('env', role);
  const netns = /nsenter (--net=\S+)/.exec(text)?.[1];
  const env: Record<string, string> = {
    PATH: '/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/sbin:/bin',
  };
  for (const [, name, value] of text.matchAll(/^export (\w+)='(.*)'$/gm)) {
    if (name !== undefined) env[name] = value ?? '';
  }
  const admin = env['WEFT_ADMIN_ADDRESS']?.replace(/^unix:/, '');
  if (netns === undefined || admin === undefined) throw new Error(`weft env ${role}: ${text}`);
  return { netns, env: { ...env, RUST_LOG: 'error' }, admin };
}

/** Starts the role and waits until it reports that it is ready. */
async function start(mesh: BenchMesh, role: string): Promise<Start> {
  const { netns, env, admin } = await setting(mesh, role);
  const actor = role.replace(/^.*\//, '');
  const startedMs = performance.now();
  const child = spawn('nsenter', [netns, weft, 'run', actor], {
    env,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const closed = once(child, 'close');
  const seconds = await eventually(`${role} to be ready`, READY_WITHIN_MS, async () => {
    await output('curl', ['-sf', '--unix-socket', admin, 'http://actor/healthz/ready']);
    return (performance.now() - startedMs) / 1_000;
  });
  return {
    seconds,
    processorSeconds: await processorSeconds(child.pid ?? 0),
    async stop() {
      child.kill('SIGTERM');
      await closed;
    },
  };
}

/** Reads the user and system time of the process and of the programs that it waited for. */
async function processorSeconds(pid: number): Promise<number> {
  const line = await readFile(`/proc/${pid}/stat`, 'utf8');
  const ticks = line
    .slice(line.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 15);
  return ticks.reduce((sum, tick) => sum + Number(tick), 0) / TICKS_PER_SECOND;
}

/** Runs one round: starts every role in order and stops all in reverse order. */
async function round(): Promise<ReadonlyMap<string, Start>> {
  const mesh = new BenchMesh();
  const external = ROLES.join(',');
  await mesh.weft(
    ...(['up', '--detach', '--nodes', '1', '--manifests', manifests] as const),
    '--external',
    external,
  );
  const starts = new Map<string, Start>();
  try {
    for (const role of ROLES) starts.set(role, await start(mesh, role));
  } finally {
    for (const started of [...starts.values()].reverse()) await started.stop();
    await mesh.down();
  }
  return starts;
}

function median(numbers: readonly number[]): number {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.NaN;
}

const results: ReadonlyMap<string, Start>[] = [];
for (let index = 0; index < rounds; index += 1) results.push(await round());
process.stdout.write('actor               ready after, s   processor, s\n');
for (const role of ROLES) {
  const starts = results.flatMap((result) => result.get(role) ?? []);
  const ready = median(starts.map(({ seconds }) => seconds)).toFixed(2);
  const processor = median(starts.map(({ processorSeconds: used }) => used)).toFixed(2);
  process.stdout.write(`${role.padEnd(20)}${ready.padStart(14)}${processor.padStart(15)}\n`);
}

/**
 * Replaces node proxies under load, generation after generation, with and without failures of other parts of the mesh.
 * Prints a line for each step; fails when any connection failed or was dropped. Run it as root:
 * `npm run upgrade-soak`, with `--generations N` (20).
 */
import { parseArgs } from 'node:util';
import { performance } from 'node:perf_hooks';
import { setTimeout as wait } from 'node:timers/promises';
import { present } from '../../lib/errors/assert.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { Load } from '../support/load.ts';
import { TestMesh } from '../support/mesh.ts';
import type { ActorLine } from '../support/mesh.ts';
import { killAll } from '../support/mesh-faults.ts';
import { until } from '../support/until.ts';
import { KeptConnections } from './kept.ts';

/** Far longer than the run: connections may only end by themselves. */
const DRAIN_DEADLINE = '12h';
/** Long enough to see that a proxy waits for what it lacks. */
const HELD_BACK_MS = 4_000;
const EVERY_ACTOR = [
  'node-agent',
  'cert-fetcher',
  'ca',
  'control-plane',
  'xds-ingester',
  'policy-evaluator',
];

const { values } = parseArgs({ options: { generations: { type: 'string', default: '20' } } });
const generations = Number(values.generations);

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** The traffic that must not be disturbed. */
interface Traffic {
  readonly load: Load;
  readonly kept: KeptConnections;
}

async function step(
  what: string,
  { load, kept }: Traffic,
  work: () => Promise<string | void>,
): Promise<void> {
  const start = performance.now();
  const told = (await work()) ?? '';
  await load.goesOn(`after ${what}`);
  const seconds = ((performance.now() - start) / 1_000).toFixed(1);
  const dropped = await kept.dropped();
  const counts = `${load.failures().length} failed, ${dropped} of ${kept.count} dropped`;
  say(`${what.padEnd(40)} ${seconds.padStart(6)} s  ${counts}  ${told}`);
  if (dropped > 0) throw new Error('a connection was dropped');
  await kept.open();
}

async function upgrade(mesh: TestMesh, ...roles: readonly string[]): Promise<void> {
  const outcome = await mesh.weft('upgrade', ...roles);
  if (outcome.code !== 0) throw new Error(`weft upgrade: ${outcome.stderr}`);
}

/** Reports how many proxies drain, and their memory. */
async function draining(mesh: TestMesh): Promise<string> {
  const retiring = (await proxies(mesh)).filter((line) => line.retiring).length;
  const bytes = await mesh.metric('node-proxy', 'node-1', 'weft_node_proxy_resident_bytes', {
    state: 'draining',
  });
  return `${retiring} drain, those of node-1 hold ${Math.round(bytes / 1e6)} MB`;
}

async function proxies(mesh: TestMesh): Promise<readonly ActorLine[]> {
  return (await mesh.actors()).filter(({ name }) => name === 'node-proxy');
}

/** Upgrades the proxies while some processes are stopped; the upgrade completes once these continue. */
async function upgradeWithout(
  mesh: TestMesh,
  load: Load,
  pids: readonly number[],
  heldBack: boolean,
): Promise<string> {
  for (const pid of pids) process.kill(pid, 'SIGSTOP');
  const done = upgrade(mesh, 'node-proxy');
  let over = false;
  void done.finally(() => (over = true)).catch(() => undefined);
  try {
    if (heldBack) await wait(HELD_BACK_MS);
    else await done;
    await load.goesOn('while it is away');
    if (heldBack && over) throw new Error('a proxy took over without what it needs');
  } finally {
    for (const pid of pids) process.kill(pid, 'SIGCONT');
  }
  await done;
  return heldBack ? 'held back until it returned' : 'went on without it';
}

/** Kills the new proxy of node-1 as soon as it exists; the supervisor starts it again. */
async function killStarting(mesh: TestMesh): Promise<string> {
  const before = new Set((await proxies(mesh)).map(({ pid }) => pid));
  const done = upgrade(mesh, 'node-1/node-proxy');
  const pid = await until(() => startedSince(mesh, before), { what: 'the new process' });
  await killAll([pid]);
  await done;
  return 'the new process was killed once';
}

/** Finds a new process by its namespace, before the status lists it. */
async function startedSince(mesh: TestMesh, before: ReadonlySet<number>): Promise<number | null> {
  const inside = mesh.start('ip', ['netns', 'pids', `${mesh.name}-node-1`]);
  const pids = (await inside.exit).stdout.split('\n').filter(Boolean).map(Number);
  for (const pid of pids) {
    if (before.has(pid)) continue;
    const command = (await mesh.start('cat', [`/proc/${pid}/cmdline`]).exit).stdout;
    if (command.includes('node-proxy')) return pid;
  }
  return null;
}

/** Kills draining proxies: only their own connections may end. */
async function killDraining(mesh: TestMesh, { load, kept }: Traffic): Promise<string> {
  const retiring = (await proxies(mesh)).filter((line) => line.retiring);
  // The oldest proxy of each node carries the load's kept connections.
  const pids = retiring.slice(-2).map(({ pid }) => pid);
  await killAll(pids);
  await load.goesOn('with old proxies killed');
  const dropped = await kept.dropped();
  // A generation that served during several steps carries one connection from each.
  if (dropped > kept.count / 2) throw new Error(`${dropped} connections ended with ${pids.length}`);
  return `${pids.length} draining proxies killed: ${load.failures().length} failed, ${dropped} ended with them`;
}

async function run(mesh: TestMesh): Promise<readonly unknown[]> {
  const outsider = await mesh.pod('plain', 'outsider');
  const load = await Load.start(mesh, 'demo/client', 'api:80', 'web:80', `${outsider.ip}:8080`);
  const api = await mesh.pod('demo', 'api-1');
  const kept = new KeptConnections(mesh.netns('demo-client'), { ip: api.ip, port: 8080 });
  await kept.open();
  const traffic = { load, kept };
  for (let count = 1; count <= generations; count += 1) {
    await step(`generation ${count + 1} of both nodes`, traffic, async () => {
      await upgrade(mesh, 'node-proxy');
      return draining(mesh);
    });
  }
  await step('every other actor replaced', traffic, () => upgrade(mesh, ...EVERY_ACTOR));
  for (const [what, names, heldBack] of [
    ['the CA', ['ca'], true],
    ['the control plane', ['control-plane'], false],
    ['all central actors', ['ca', 'control-plane', 'xds-ingester', 'policy-evaluator'], true],
  ] as const) {
    const pids = await Promise.all(names.map(async (name) => (await mesh.actor(name, null)).pid));
    await step(`upgrade without ${what}`, traffic, () =>
      upgradeWithout(mesh, load, pids, heldBack),
    );
  }
  const pid = present((await mesh.status()).redis.pid, 'Redis runs');
  await step('upgrade without Redis', traffic, () => upgradeWithout(mesh, load, [pid], true));
  await step('the new proxy killed while it starts', traffic, () => killStarting(mesh));
  say(await killDraining(mesh, traffic));
  kept.close();
  return load.stop();
}

const mesh = await TestMesh.up({
  environment: { CONNECTION_TERMINATION_DEADLINE: DRAIN_DEADLINE },
});
try {
  const failures = await run(mesh);
  say(failures.length === 0 ? 'nothing failed' : JSON.stringify(failures, null, 2));
  process.exitCode = failures.length === 0 ? 0 : 1;
} catch (error) {
  say(`${errorText(error)}\n${await mesh.logs()}`);
  process.exitCode = 1;
} finally {
  await mesh.down();
}

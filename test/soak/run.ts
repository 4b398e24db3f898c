/**
 * Runs the soak: mixed traffic, resets, half-closes, stalls, pod churn and certificate rotation on its own mesh. Then
 * counters must balance, and descriptors and memory must be back. Ends with one line, and with status 1 on a
 * failure. `npm run soak` takes ten minutes; `--seconds N` sets another time, `--pause MS` another pause after each exchange.
 * `--enrolments N` soaks a node agent of `--pods` pods instead, for at most `--seconds`.
 */
import { parseArgs } from 'node:util';
import { setTimeout as wait } from 'node:timers/promises';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { downWhenInterrupted } from '../support/interruption.ts';
import { TestMesh } from '../support/mesh.ts';
import { until } from '../support/until.ts';
import { Churn } from './churn.ts';
import { SoakClient } from './clients.ts';
import type { Traffic } from './clients.ts';
import { imbalances, readCounters } from './counters.ts';
import type { Counters } from './counters.ts';
import { soakEnrolments } from './enrolments.ts';
import { ORDERLY, ROUGH } from './protocol.ts';
import { grownMemory, heldDescriptors, least, mib, pairs, readUsage } from './resources.ts';
import type { Usage } from './resources.ts';

const SERVER = new URL('server.ts', import.meta.url).pathname;
const MANIFESTS = new URL('manifests', import.meta.url).pathname;
const SERVERS = ['orderly-1', 'orderly-2', 'rough'] as const;
/** A certificate is renewed after half of its life, so several times even in the shortest soak. */
const CERTIFICATE_LIFE = '20s';
const SAMPLE_MS = 1_000;
/** Much longer than it takes to close idle tunnels, count ended connections and release free memory. */
const SETTLE_TIMEOUT_MS = 90_000;
const FAILURES_SHOWN = 20;

const { values } = parseArgs({
  options: {
    seconds: { type: 'string' },
    pause: { type: 'string', default: '10' },
    enrolments: { type: 'string' },
    pods: { type: 'string', default: '1000' },
  },
});
const seconds = Number(values.seconds ?? 600);
/** The pause of each client after an exchange, milliseconds. */
const pauseMs = Number(values.pause);
const say = (text: string): void => void process.stderr.write(`soak: ${text}\n`);

/** The smallest memory seen in the second and in the last third of the time. */
interface Samples {
  early: readonly Usage[] | null;
  late: readonly Usage[] | null;
}

async function startServers(mesh: TestMesh): Promise<ReadonlyMap<string, string>> {
  const hosts = new Map<string, string>();
  for (const name of SERVERS) {
    const server = mesh.inNetns(`soak-${name}`, process.execPath, SERVER);
    await until(() => server.output() !== '', { what: `${name} to listen`, timeoutMs: 20_000 });
    hosts.set(name, (await mesh.pod('soak', name)).ip);
  }
  return hosts;
}

function traffic(hosts: ReadonlyMap<string, string>): Traffic[] {
  const to = (pod: string, server: string, atOnce: number, kinds: Traffic['kinds']): Traffic => ({
    pod,
    host: hosts.get(server) ?? '',
    atOnce,
    pauseMs,
    kinds,
  });
  return [
    to('client-1', 'orderly-2', ORDERLY.length, ORDERLY),
    to('client-1', 'orderly-1', 2, ORDERLY),
    to('client-2', 'orderly-1', 3, ORDERLY),
    to('client-1', 'rough', ROUGH.length, ROUGH),
    to('client-2', 'rough', 1, ROUGH),
  ];
}

/** Lets everything run; returns the smallest memory in two periods. */
async function sampled(mesh: TestMesh): Promise<Samples> {
  const samples: Samples = { early: null, late: null };
  const start = performance.now();
  for (;;) {
    const share = (performance.now() - start) / (seconds * 1_000);
    if (share >= 1) return samples;
    const usage = await readUsage(mesh);
    if (share >= 1 / 3) {
      const part = share < 2 / 3 ? 'early' : 'late';
      samples[part] = samples[part] === null ? usage : least(samples[part], usage);
    }
    await wait(SAMPLE_MS);
  }
}

/** The counters and resources of a mesh at one moment. */
interface State {
  readonly counters: Counters;
  readonly usage: readonly Usage[];
}

async function readState(mesh: TestMesh): Promise<State> {
  const usage = await readUsage(mesh);
  return { counters: await readCounters(mesh, SERVERS.slice(0, 2)), usage };
}

/**
 * Waits until nothing is open, the counters agree and memory is returned, and resolves with that moment: memory that is just
 * being collected may be more again at the next look. Resolves with the last moment where the mesh does not settle.
 */
async function settled(mesh: TestMesh, before: readonly Usage[]): Promise<State> {
  try {
    return await until(
      async () => {
        const state = await readState(mesh);
        if (heldDescriptors(before, state.usage).length > 0) return null;
        if (grownMemory(before, state.usage, seconds).length > 0) return null;
        return imbalances(state.counters).length === 0 ? state : null;
      },
      { what: 'the mesh to settle', timeoutMs: SETTLE_TIMEOUT_MS },
    );
  } catch (error) {
    say(errorText(error));
    return readState(mesh);
  }
}

/** Runs the soak; returns its failures. */
async function soak(mesh: TestMesh): Promise<readonly string[]> {
  const hosts = await startServers(mesh);
  const before = await readUsage(mesh);
  const restarts = await sumOfRestarts(mesh);
  say(`${seconds} s of traffic`);
  const clients = traffic(hosts).map((one) => new SoakClient(mesh, one));
  const churn = new Churn(mesh, hosts.get('rough') ?? '');
  const samples = await sampled(mesh);
  say('letting everything come to its end');
  await churn.stop();
  await Promise.all(clients.map((client) => client.stop()));
  const { counters, usage: after } = await settled(mesh, before);
  const problems = [
    ...clients.flatMap((client) => client.failures()),
    ...churn.failures,
    ...imbalances(counters),
    ...heldDescriptors(before, after),
    ...grownMemory(samples.early ?? before, samples.late ?? after, seconds),
    ...grownMemory(before, after, seconds),
    ...((await sumOfRestarts(mesh)) > restarts ? ['an actor was restarted'] : []),
  ];
  process.stdout.write(`${summary(clients, churn, counters, pairs(before, after), problems)}\n`);
  return problems;
}

async function sumOfRestarts(mesh: TestMesh): Promise<number> {
  return (await mesh.actors()).reduce((sum, actor) => sum + actor.restarts, 0);
}

function summary(
  clients: readonly SoakClient[],
  churn: Churn,
  { opened, closed, orderlyBytes, certificates }: Counters,
  usage: readonly (readonly [Usage, Usage])[],
  problems: readonly string[],
): string {
  const kinds = [...ORDERLY, ...ROUGH].map((kind) => {
    const count = clients.reduce((sum, client) => sum + (client.counts()[kind] ?? 0), 0);
    return `${kind} ${count}`;
  });
  const reporters = (['source', 'destination'] as const).map(
    (reporter) => `${reporter} ${opened[reporter]} = ${closed[reporter]}`,
  );
  const proxies = usage.filter(([was]) => was.name.startsWith('node-proxy'));
  const descriptors = proxies.map(([was, is]) => `${was.descriptors} → ${is.descriptors}`);
  const memory = proxies.map(([was, is]) => `${mib(was)} → ${mib(is)} MiB`);
  return [
    `soak ${problems.length === 0 ? 'ok' : `FAILED (${problems.length})`}: ${seconds} s`,
    kinds.join(', '),
    `${churn.pods} pods came and went, ${certificates} certificates`,
    `opened = closed: ${reporters.join(', ')}`,
    `${orderlyBytes.source} = ${orderlyBytes.destination} bytes`,
    `descriptors ${descriptors.join(', ')}`,
    `memory ${memory.join(', ')}`,
  ].join('; ');
}

async function soakMesh(): Promise<readonly string[]> {
  say('bringing up a mesh');
  const mesh = await TestMesh.up({
    manifests: MANIFESTS,
    environment: {
      SECRET_TTL: CERTIFICATE_LIFE,
      POOL_UNUSED_RELEASE_TIMEOUT: '2s',
    },
  });
  const callOff = downWhenInterrupted(() => mesh.down());
  try {
    return await soak(mesh);
  } finally {
    callOff();
    await mesh.down();
  }
}

const problems = await (values.enrolments === undefined
  ? soakMesh()
  : soakEnrolments(
      {
        pods: Number(values.pods),
        enrolments: Number(values.enrolments),
        seconds: Number(values.seconds ?? Number.POSITIVE_INFINITY),
      },
      say,
    ));
for (const problem of problems.slice(0, FAILURES_SHOWN)) say(problem);
if (problems.length > FAILURES_SHOWN) say(`and ${problems.length - FAILURES_SHOWN} more`);
if (problems.length > 0) process.exitCode = 1;

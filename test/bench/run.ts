/**
 * The benchmark compares Weft with a direct connection, an HAProxy pair, a bare `node:http2` pair, a bare `node:tls` pair
 * and a C splice pump, over the same namespaces in one run. `npm run bench` prints the table; the README explains it.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { downWhenInterrupted } from '../support/interruption.ts';
import { compactCost } from './figures/compact.ts';
import { driftCost } from './figures/drift.ts';
import { listenerCost } from './figures/javascript.ts';
import { idleCost, workloadCost } from './figures/memory.ts';
import { requests } from './figures/requests.ts';
import { serviceCost } from './figures/services.ts';
import { throughputs } from './figures/throughput.ts';
import { measure, peersOf } from './lib/measurement.ts';
import type { FigureResult, Measurement } from './lib/measurement.ts';
import { output } from './lib/process.ts';
import type { Memory } from './lib/process.ts';
import { PEERS, Rig } from './lib/rig.ts';
import type { PeerName } from './lib/rig.ts';
import { render } from './lib/table.ts';
import type { LimitResult } from './lib/table.ts';

const { values } = parseArgs({
  options: {
    short: { type: 'boolean', default: false },
    seconds: { type: 'string' },
    rounds: { type: 'string' },
    only: { type: 'string' },
    peers: { type: 'string' },
    idle: { type: 'string' },
    workloads: { type: 'string' },
    output: { type: 'string', short: 'o', default: 'table' },
  },
});
const short = values.short;
const pace = {
  seconds: Number(values.seconds ?? (short ? 1 : 3)),
  rounds: Number(values.rounds ?? (short ? 1 : 3)),
};
const idleConnections = Number(values.idle ?? (short ? 100 : 2_000));
const knownWorkloads = Number(values.workloads ?? (short ? 100 : 1_000));
/** Many, so that occasional heap growth is not attributed to a pod. */
const ADDED_PODS = 180;
/** Pods that a kubelet runs at most by default, and those of a large node. */
const USUAL_PODS = 110;
const MANY_PODS = 1_000;
const FEW_ENDPOINTS = 100;
const MANY_ENDPOINTS = 5_000;
const only = new RegExp(values.only ?? '');
const wanted = new Set(PEERS.filter((peer) => values.peers?.split(',').includes(peer) ?? true));

const say = (text: string): void => void process.stderr.write(`bench: ${text}\n`);
const chosen = (label: string): boolean => only.test(label);

const IDLE = 'memory per idle connection';
const WORKLOADS = 'memory of a node proxy per 1,000 workloads, MiB';
const SERVICES = 'services';
const DRIFT = "the node agent's look for drift";
const COMPACT = 'node side in one process, 3 pods';
const ROLES = 'memory of an idle';
const LISTENER = 'a listener thread for a new connection';
/** Processor microseconds that JavaScript may take for a new connection on each side. */
const JAVASCRIPT_US = 80;
/** Load after which its code is compiled. */
const WARM_SECONDS = 15;
/** Private megabytes that an idle role may take: the node proxy, and each other one. */
const PROXY_MB = 60;
const ROLE_MB = 30;
/** Kilobytes that an idle connection may take on each side. */
const CONNECTION_KB = 5.5;
/** An idle actor has collected its garbage by then, also where it waited for a busy machine. */
const IDLE_MS = 120_000;
/** Garbage collectors of other programs run after a moment. */
const SETTLE_MS = 2_000;

/** Selects the rows of this run. The short form runs one of each kind. */
function plan(): readonly Measurement[] {
  return [...throughputs, ...requests].filter(
    (row) => row.figures.some(({ label }) => chosen(label)) && (!short || row.short !== undefined),
  );
}

/** Lists the peers of a row. */
function takingPart(row: Measurement): ReadonlySet<PeerName> {
  return short && row.short === 'weft' ? new Set<PeerName>(['weft']) : wanted;
}

async function figures(rig: Rig, rows: readonly Measurement[]): Promise<FigureResult[]> {
  const results: FigureResult[] = [];
  for (const row of rows) {
    say(row.figures.map(({ label }) => label).join('; '));
    results.push(...(await measure(rig, row, takingPart(row), pace)));
  }
  return results;
}

async function idleMemory(rig: Rig): Promise<LimitResult[]> {
  say(IDLE);
  const sides: [string, PeerName, readonly number[]][] = [
    ['weft', 'weft', await rig.mesh.pids('node-proxy')],
    ...[...rig.pairs]
      .filter(([name]) => (name === 'haproxy' || name === 'http2') && !short)
      .map(([name, pids]): [string, PeerName, readonly number[]] => [name, name, pids]),
  ];
  const results: LimitResult[] = [];
  for (const [name, peer, pids] of sides) {
    const costs = await idleCost(
      rig.target(peer, 'nodes'),
      pids,
      idleConnections,
      name === 'weft' && !short ? IDLE_MS : SETTLE_MS,
    );
    for (const [index, bytes] of costs.entries()) {
      results.push({
        label: `${IDLE}, ${name} ${index === 0 ? 'client' : 'server'} side, kB`,
        value: bytes / 1_000,
        digits: 1,
        most: name === 'weft' ? CONNECTION_KB : null,
      });
    }
  }
  return results;
}

function memoryRows(
  what: string,
  { resident, proportional, own }: Memory,
  most: number | null,
): LimitResult[] {
  const row = (kind: string, bytes: number, limit: number | null): LimitResult => ({
    label: `${what}, ${kind}, MB`,
    value: bytes / 1e6,
    digits: 0,
    most: limit,
  });
  return [
    row('resident', resident, null),
    row('proportional', proportional, null),
    row('private', own, most),
  ];
}

async function roles(rig: Rig): Promise<LimitResult[]> {
  say(ROLES);
  if (!short) await wait(IDLE_MS);
  return [...(await rig.mesh.memory())].flatMap(([name, memory]) =>
    memoryRows(`${ROLES} ${name}`, memory, name === 'node-proxy' ? PROXY_MB : ROLE_MB),
  );
}

async function listeners(rig: Rig): Promise<LimitResult[]> {
  say(LISTENER);
  const warmSeconds = short ? pace.seconds : WARM_SECONDS;
  const costs = await listenerCost(rig.target('weft', 'nodes'), await rig.mesh.pids('node-proxy'), {
    warmSeconds,
    seconds: pace.seconds,
  });
  return costs.flatMap(({ user, system }, index) => {
    const side = index === 0 ? 'client' : 'server';
    const row = (what: string, value: number, most: number | null): LimitResult => ({
      label: `${LISTENER}, ${side} side, ${what} µs`,
      value,
      digits: 0,
      most,
    });
    return [row('user', user, JAVASCRIPT_US), row('system', system, null)];
  });
}

async function limits(rig: Rig): Promise<LimitResult[]> {
  const results: LimitResult[] = [];
  if (chosen(LISTENER)) results.push(...(await listeners(rig)));
  if (chosen(IDLE)) results.push(...(await idleMemory(rig)));
  if (chosen(WORKLOADS)) {
    say(WORKLOADS);
    const bytes = await workloadCost(rig.mesh, rig.scratch, knownWorkloads);
    results.push({ label: WORKLOADS, value: bytes / 1_048_576, digits: 1, most: null });
  }
  // This needs a separate mesh, which takes too long for the short form.
  if (!short && chosen(COMPACT)) {
    say(COMPACT);
    const { memory, resident, perPod } = await compactCost(rig.scratch, ADDED_PODS);
    results.push(...memoryRows(COMPACT, memory, null));
    results.push({ label: `${COMPACT}, MB`, value: resident / 1e6, digits: 0, most: 110 });
    results.push({
      label: `${COMPACT}, kB per further pod`,
      value: perPod / 1e3,
      digits: 0,
      most: 60,
    });
  }
  return results;
}

/** Measures a thread's own work, without a mesh. */
async function services(): Promise<LimitResult[]> {
  if (!chosen(SERVICES)) return [];
  say(SERVICES);
  const few = await serviceCost(FEW_ENDPOINTS);
  const many = await serviceCost(MANY_ENDPOINTS);
  const row = (what: string, value: number, most: number | null): LimitResult => ({
    label: `${SERVICES}: ${what}`,
    value,
    digits: 1,
    most,
  });
  const of = `of ${MANY_ENDPOINTS} endpoints`;
  const beside = `${MANY_ENDPOINTS} endpoints beside ${FEW_ENDPOINTS}, ratio`;
  return [
    row(`a pick ${of}, µs`, many.pick, 20),
    row(`a pick, ${beside}`, many.pick / few.pick, null),
    row(`the first pick after a change ${of}, µs`, many.pickAfterChange, 100),
    row(`a change of one ${of}, listener, µs`, many.change, 1_000),
    row(`a change, ${beside}`, many.change / few.change, null),
    row(`one message of the first question ${of}, listener, µs`, many.page, 1_000),
  ];
}

/** Measures the check in this process, over namespaces of its own. */
async function drift(): Promise<LimitResult[]> {
  if (!chosen(DRIFT)) return [];
  const results: LimitResult[] = [];
  // A thousand namespaces take a minute to make.
  for (const pods of short ? [USUAL_PODS] : [USUAL_PODS, MANY_PODS]) {
    say(`${DRIFT}, ${pods} pods`);
    results.push({
      label: `${DRIFT}, ${pods} pods, % of a core`,
      value: await driftCost(pods, short ? 5 : 60),
      digits: 2,
      most: pods === USUAL_PODS ? 2 : null,
    });
  }
  return results;
}

/** Runs all measurements that need a mesh. */
async function inMesh(rows: readonly Measurement[]): Promise<[FigureResult[], LimitResult[]]> {
  for (const tool of ['iperf3', 'wrk', 'haproxy', 'openssl', 'gcc', 'curl']) {
    await output('sh', ['-c', `command -v ${tool}`]).catch(() => {
      throw new Error(`${tool} is missing: run sh infra/setup.sh --bench`);
    });
  }
  const peers = new Set<PeerName>([
    'weft',
    ...rows.flatMap((row) => peersOf(row, takingPart(row))),
  ]);
  if (chosen(IDLE) && !short) for (const peer of ['haproxy', 'http2'] as const) peers.add(peer);
  say(`bringing up a mesh and ${[...peers].join(', ')}`);
  const rig = await Rig.up(peers);
  const callOff = downWhenInterrupted(() => rig.down());
  try {
    // Before anything has been carried.
    const idle = chosen(ROLES) ? await roles(rig) : [];
    return [await figures(rig, rows), [...idle, ...(await limits(rig))]];
  } finally {
    callOff();
    await rig.down();
  }
}

const rows = plan();
const alone = [...(await services()), ...(await drift())];
const needsMesh = rows.length > 0 || [ROLES, LISTENER, IDLE, WORKLOADS, COMPACT].some(chosen);
const [results, held] = needsMesh ? await inMesh(rows) : [[], []];
const others = [...held, ...alone];
const plain = results.map(({ figure, values: medians, rounds }) => ({
  ...figure,
  values: Object.fromEntries(medians),
  rounds: Object.fromEntries(rounds),
}));
process.stdout.write(
  values.output === 'json'
    ? `${JSON.stringify({ ...pace, figures: plain, limits: others }, null, 2)}\n`
    : render(results, others, pace),
);

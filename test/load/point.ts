/** Measures one point of the curve: loads a new mesh in three ways, one after another. */
import { downWhenInterrupted } from '../support/interruption.ts';
import type { LoadMesh, MeshSize } from './mesh.ts';
import type { LoadAnswer, LoadPod } from './messages.ts';
import { LoadProcess, costOf, percentile } from './process.ts';

/** The size of the mesh and of the load. */
export interface LoadOptions {
  readonly nodes: number;
  /** Enrolled pods on every node. */
  readonly pods: number;
  readonly proxies: number;
  /** The number of connections that every node carries throughout. */
  readonly connections: number;
  /** New connections per second over the whole mesh. */
  readonly rate: number;
  readonly durationSeconds: number;
}

/** The result of one point. */
export interface Point {
  readonly threads: number;
  /** Proxy processes of a node. */
  readonly proxies: number;
  /** Listener threads of a node: processes × threads. */
  readonly workers: number;
  readonly upSeconds: number;
  readonly gbits: number;
  readonly newPerSecond: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
  readonly held: number;
  /** Connections that were answered and then ended by themselves, both held ones and those with bytes. */
  readonly lost: number;
  /** Connections that were refused or not answered. */
  readonly refused: number;
  /** The reasons, each once. */
  readonly reasons: readonly string[];
  /** Cores that all node proxies together used during new connections; then the same while bytes flowed. */
  readonly cpuRate: number;
  readonly cpuBulk: number;
  /** Cores that the load itself used during new connections. */
  readonly cpuLoad: number;
  /** Resident bytes of all node proxies before the load; then with all connections held. */
  readonly idleBytes: number;
  readonly heldBytes: number;
}

const BULK_CONNECTIONS = 4;
/** The number of distinct reasons shown. */
const REASONS_SHOWN = 5;

interface Rig {
  readonly clients: readonly LoadProcess[];
  readonly servers: readonly LoadProcess[];
}

/** Brings a mesh up with the given number of listener threads in each proxy, loads it, and takes it down. */
export async function measurePoint(
  options: LoadOptions,
  threads: number,
  bringUp: (size: MeshSize) => Promise<LoadMesh>,
  say: (text: string) => void,
): Promise<Point> {
  const start = performance.now();
  const { nodes, pods, proxies } = options;
  const mesh = await bringUp({ nodes, pods, proxies, threads });
  const upSeconds = (performance.now() - start) / 1_000;
  say(`${nodes * pods} pods on ${nodes} nodes are up in ${upSeconds.toFixed(0)} s`);
  const rig = {
    clients: Array.from({ length: nodes }, () => new LoadProcess('client')),
    servers: Array.from({ length: nodes }, () => new LoadProcess('server')),
  };
  const callOff = downWhenInterrupted(() => mesh.down());
  try {
    await place(mesh, rig);
    return {
      threads,
      proxies,
      workers: threads * proxies,
      upSeconds,
      ...(await load(mesh, rig, options, say)),
    };
  } finally {
    callOff();
    await Promise.all([...rig.clients, ...rig.servers].map((one) => one.stop()));
    await mesh.down();
  }
}

/** Places clients and servers. Each node's clients call the next node's servers; with one node, its own. */
async function place(mesh: LoadMesh, { clients, servers }: Rig): Promise<void> {
  const pods = await mesh.pods();
  const of = (index: number): LoadPod[] =>
    pods
      .filter(({ node }) => node === `node-${(index % clients.length) + 1}`)
      .map(({ netns, ip }) => ({ ip, netns }));
  await Promise.all(servers.map((one, index) => one.ask({ type: 'serve', pods: of(index) })));
  await Promise.all(
    clients.map((one, index) => one.ask({ type: 'use', from: of(index), to: of(index + 1) })),
  );
}

async function load(
  mesh: LoadMesh,
  { clients, servers }: Rig,
  { connections, rate, durationSeconds }: LoadOptions,
  say: (text: string) => void,
): Promise<Omit<Point, 'threads' | 'proxies' | 'workers' | 'upSeconds'>> {
  const pids = await mesh.proxyPids();
  const own = [...clients, ...servers].map(({ pid }) => pid);
  const everyone = (message: Parameters<LoadProcess['ask']>[0]): Promise<LoadAnswer[]> =>
    Promise.all(clients.map((one) => one.ask(message)));
  const idle = await costOf(pids);

  say(`holding ${connections} connections on every node`);
  // The client's node and the server's node both carry each connection.
  const perClient = Math.round(clients.length === 1 ? connections : connections / 2);
  const held = await everyone({ type: 'hold', connections: perClient });
  const heldCost = await costOf(pids);

  say(`${rate} new connections a second for ${durationSeconds} s`);
  const started = performance.now();
  const [before, ownBefore] = await Promise.all([costOf(pids), costOf(own)]);
  const perSecond = rate / clients.length;
  const fresh = await everyone({ type: 'rate', perSecond, seconds: durationSeconds });
  const [after, ownAfter] = await Promise.all([costOf(pids), costOf(own)]);
  const took = (performance.now() - started) / 1_000;

  const bulkSeconds = Math.min(durationSeconds, 5);
  say(`bytes for ${bulkSeconds} s`);
  const bulkBefore = await costOf(pids);
  const bulk = await everyone({
    type: 'bulk',
    connections: BULK_CONNECTIONS,
    seconds: bulkSeconds,
  });
  const bulkAfter = await costOf(pids);
  const released = await everyone({ type: 'release' });

  const latencies = fresh.flatMap((one) => one.latencies).toSorted((a, b) => a - b);
  const failures = [...held, ...fresh, ...bulk].flatMap((one) => one.failures);
  const sum = (answers: readonly LoadAnswer[], key: 'done' | 'bytes' | 'lost'): number =>
    answers.reduce((total, one) => total + one[key], 0);
  return {
    gbits: (sum(bulk, 'bytes') * 8) / bulkSeconds / 1e9,
    newPerSecond: sum(fresh, 'done') / took,
    p50: percentile(latencies, 0.5),
    p90: percentile(latencies, 0.9),
    p99: percentile(latencies, 0.99),
    p999: percentile(latencies, 0.999),
    held: sum(held, 'done'),
    lost: sum(released, 'lost') + sum(bulk, 'lost'),
    refused: failures.length,
    reasons: [...new Set(failures)].slice(0, REASONS_SHOWN),
    cpuRate: (after.cpuSeconds - before.cpuSeconds) / took,
    cpuBulk: (bulkAfter.cpuSeconds - bulkBefore.cpuSeconds) / bulkSeconds,
    cpuLoad: (ownAfter.cpuSeconds - ownBefore.cpuSeconds) / took,
    idleBytes: idle.residentBytes,
    heldBytes: heldCost.residentBytes,
  };
}

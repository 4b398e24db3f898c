/**
 * The benchmark: direct, a plain Node relay, Weft and an HAProxy mTLS pair over the same namespaces in one run.
 * `npm run bench` prints the table; `--short` keeps every figure alive in seconds; `-o json` prints raw figures.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { BenchMesh } from './lib/mesh.ts';
import { closedLoop, fixedRate, throughput } from './lib/loads.ts';
import type { Target } from './lib/loads.ts';
import { haproxyCertificates, haproxySide, relay, servers } from './lib/peers.ts';
import { eventually, inNamespace, output, residentBytes } from './lib/process.ts';
import type { Background } from './lib/process.ts';
import type { Forward } from './lib/peers.ts';
import { render } from './lib/table.ts';
import type { Figures } from './lib/table.ts';

const BYTES_PORT = 5201;
const HTTP_PORT = 8081;
/** Ports of the peers: what the client dials on its node, and what the two nodes speak. */
const RELAY = { client: [7101, 7102], server: [7111, 7112] } as const;
const HAPROXY = { client: [7201, 7202], server: [7211, 7212] } as const;

const { values } = parseArgs({
  options: {
    short: { type: 'boolean', default: false },
    seconds: { type: 'string' },
    idle: { type: 'string' },
    workloads: { type: 'string' },
    output: { type: 'string', short: 'o', default: 'table' },
  },
});
const seconds = Number(values.seconds ?? (values.short ? 1 : 4));
const idleConnections = Number(values.idle ?? (values.short ? 100 : 2_000));
const knownWorkloads = Number(values.workloads ?? (values.short ? 100 : 1_000));

const say = (text: string): void => void process.stderr.write(`bench: ${text}\n`);

async function measure(name: string, target: Target): Promise<Figures> {
  say(`${name}: throughput`);
  const one = { connections: 1, seconds };
  const eight = { connections: 8, seconds };
  const up1 = await throughput(target, { ...one, down: false });
  const down1 = await throughput(target, { ...one, down: true });
  const up8 = values.short ? null : await throughput(target, { ...eight, down: false });
  const down8 = values.short ? null : await throughput(target, { ...eight, down: true });
  say(`${name}: requests`);
  const fixed = await fixedRate(target, { connections: 8, rate: 1_000, seconds });
  const loop1 = values.short ? null : await closedLoop(target, one);
  const loop16 = await closedLoop(target, { connections: 16, seconds });
  say(`${name}: new connections`);
  const fresh = await closedLoop(target, { connections: 16, seconds, newConnections: true });
  return { name, up1, down1, up8, down8, fixed, loop1, loop16, freshPerSecond: fresh.rate };
}

/** Bytes of resident memory per idle connection, summed over the processes that carry it. */
async function idleCost(target: Target, port: number, pids: readonly number[]): Promise<number> {
  const total = async (): Promise<number> =>
    (await Promise.all(pids.map(residentBytes))).reduce((sum, bytes) => sum + bytes, 0);
  const before = await total();
  const program = new URL('idle.ts', import.meta.url).pathname;
  const args = [`--net=${target.from}`, process.execPath, program, target.host, String(port)];
  const holder = spawn('nsenter', [...args, String(idleConnections)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(holder, 'close');
  await Promise.race([
    once(holder.stdout, 'data'),
    closed.then(() => Promise.reject(new Error('idle connections were closed'))),
  ]);
  const after = await total();
  holder.kill('SIGTERM');
  await closed;
  return (after - before) / idleConnections;
}

/** Bytes of resident memory of one node-proxy per 1,000 known workloads. */
async function workloadCost(mesh: BenchMesh): Promise<number> {
  const pids = await mesh.pids('node-proxy');
  const before = await Promise.all(pids.map(residentBytes));
  const documents = Array.from({ length: knownWorkloads }, (_, index) =>
    JSON.stringify({
      apiVersion: 'networking.istio.io/v1',
      kind: 'WorkloadEntry',
      metadata: { name: `known-${index}`, namespace: 'bare', labels: { app: `app-${index % 50}` } },
      spec: {
        address: `10.77.${index >> 8}.${index & 255}`,
        serviceAccount: `account-${index % 20}`,
      },
    }),
  );
  const file = join(scratch, 'workloads.yaml');
  await writeFile(file, documents.join('\n---\n'));
  await mesh.weft('apply', '-f', file);
  await eventually('all workloads known', 60_000, async () => {
    const known = JSON.parse(await mesh.weft('get', 'workloads', '-o', 'json')) as {
      name: string;
    }[];
    const count = known.filter((workload) => workload.name.startsWith('known-')).length;
    if (count < knownWorkloads) throw new Error(`${count} known`);
  });
  const after = await Promise.all(pids.map(residentBytes));
  const grown = after.reduce((sum, bytes, index) => sum + bytes - (before[index] ?? 0), 0);
  return ((grown / pids.length) * 1_000) / knownWorkloads;
}

/** Pairs listening ports with the ports they lead to. */
function forwards(listen: readonly number[], host: string, to: readonly number[]): Forward[] {
  return listen.map((port, index) => ({ listen: port, host, port: to[index] ?? 0 }));
}

/** Load from a namespace to a host's byte and HTTP ports. */
function at(from: string, host: string, [bytes = 0, http = 0]: readonly number[]): Target {
  return { from, host, bytesPort: bytes, httpPort: http };
}

const scratch = await mkdtemp(join(tmpdir(), 'weft-bench-'));
const mesh = new BenchMesh();
const running: Background[] = [];
try {
  for (const tool of ['iperf3', 'wrk', 'hey', 'haproxy', 'openssl']) {
    await output('sh', ['-c', `command -v ${tool}`]).catch(() => {
      throw new Error(`${tool} is missing: run sh infra/setup.sh --bench`);
    });
  }
  say(`bringing up mesh ${mesh.name}`);
  await mesh.up();
  const [client, server, bareClient, bareServer] = await Promise.all([
    mesh.pod('bench', 'load'),
    mesh.pod('bench', 'server'),
    mesh.pod('bare', 'load'),
    mesh.pod('bare', 'server'),
  ]);
  const ports = { bytes: BYTES_PORT, http: HTTP_PORT };
  running.push(...(await servers(server.netns, scratch, 'mesh', ports)));
  running.push(...(await servers(bareServer.netns, scratch, 'bare', ports)));
  const node2 = '10.200.0.12';
  const app = [BYTES_PORT, HTTP_PORT];
  running.push(relay(mesh.node('node-1'), forwards(RELAY.client, node2, RELAY.server)));
  running.push(relay(mesh.node('node-2'), forwards(RELAY.server, bareServer.ip, app)));
  await haproxyCertificates(scratch);
  const haproxy = [
    await haproxySide(
      mesh.node('node-1'),
      scratch,
      'client',
      forwards(HAPROXY.client, node2, HAPROXY.server),
    ),
    await haproxySide(
      mesh.node('node-2'),
      scratch,
      'server',
      forwards(HAPROXY.server, bareServer.ip, app),
    ),
  ];
  running.push(...haproxy);
  const node1 = '10.200.0.11';
  const paths: [string, Target][] = [
    ['direct', at(bareClient.netns, bareServer.ip, app)],
    ['node relay', at(bareClient.netns, node1, RELAY.client)],
    ['weft', at(client.netns, server.ip, app)],
    ['haproxy mtls', at(bareClient.netns, node1, HAPROXY.client)],
  ];
  for (const [name, target] of paths) {
    const url = `http://${target.host}:${target.httpPort}/`;
    await eventually(`${name} answers`, 20_000, () =>
      inNamespace(target.from, 'curl', '-sf', '-m2', url),
    );
  }
  const figures: Figures[] = [];
  for (const [name, target] of paths) figures.push(await measure(name, target));
  say('memory');
  const proxies = await mesh.pids('node-proxy');
  const [, , [, weftTarget], [, haproxyTarget]] = paths as [
    unknown,
    unknown,
    [string, Target],
    [string, Target],
  ];
  const memory = {
    weftPerConnection: await idleCost(weftTarget, HTTP_PORT, proxies),
    haproxyPerConnection: await idleCost(
      haproxyTarget,
      HAPROXY.client[1],
      haproxy.map((side) => side.pid),
    ),
    weftPerThousandWorkloads: await workloadCost(mesh),
    weftResident: await Promise.all(proxies.map(residentBytes)),
  };
  process.stdout.write(
    values.output === 'json'
      ? `${JSON.stringify({ figures, memory }, null, 2)}\n`
      : render(figures, memory, { seconds, idleConnections, knownWorkloads }),
  );
} finally {
  for (const program of running) await program.stop();
  await mesh.down();
  await rm(scratch, { recursive: true });
}

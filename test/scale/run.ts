/**
 * Runs a control plane on a real API server with many pods and prints what it takes: `npm run scale -- --pods 10000 --seconds
 * 600`. Ends with 1 when a client is lost or a change fails. docs/scale.md says how to read it.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { BigMesh } from '../bench/lib/big-mesh.ts';
import { buildPushClient } from '../bench/pushes/client.ts';
import { Clients } from '../bench/pushes/clients.ts';
import { underRole } from '../kubernetes/support/rbac.ts';
import { Cluster } from '../kubernetes/support/cluster.ts';
import { startDefined } from '../kubernetes/support/start.ts';
import type { ApiServer } from '../kubernetes/support/api-server.ts';
import { goProgram } from '../interop/support/go.ts';
import { ISTIOD_NAME, ISTIOD_TAGS, Istiod } from '../interop/support/istiod.ts';
import { createCaKit } from '../support/ca-kit.ts';
import { accountSubject } from '../support/token-issuer.ts';
import { churn } from './churn.ts';
import { seed } from './etcd.ts';
import { measureFollowers } from './followers.ts';
import type { Followed } from './followers.ts';
import type { SeededObject } from './etcd.ts';
import { Plane, memoryOf } from './plane.ts';
import type { Memory } from './plane.ts';

const ROOT_NAMESPACE = 'istio-system';
const PAGE = 500;
/** A cold build of istiod takes nine minutes. */
const BUILD_TIMEOUT_MS = 900_000;
const ARRIVAL_LIMIT_S = 300;
const MEMORY_SAMPLE_MS = 2_000;
const BYTES_PER_MB = 1_048_576;

const { values } = parseArgs({
  options: {
    pods: { type: 'string', default: '10000' },
    clients: { type: 'string', default: '10' },
    rate: { type: 'string', default: '100' },
    seconds: { type: 'string', default: '600' },
    idle: { type: 'string', default: '120' },
    istiod: { type: 'boolean', default: false },
  },
});

/** The default is longer than the time between two releases of memory, also on a busy machine (lib/actor/idle-memory.ts). */
const IDLE_MS = Number(values.idle) * 1_000;

class LostError extends Error {}

function show(what: string, value: string): void {
  process.stdout.write(`  ${what.padEnd(44)} ${value}\n`);
}

/** The objects of the mesh as an API server stores them. */
function* seeded(mesh: BigMesh): Generator<SeededObject> {
  for (const [kind, json] of mesh.pages(PAGE)) {
    const apiVersion = kind === 'EndpointSlice' ? 'discovery.k8s.io/v1' : 'v1';
    const rest = kind === 'Namespace' ? { status: { phase: 'Active' } } : {};
    for (const item of JSON.parse(json) as SeededObject[]) {
      yield { ...item, ...rest, apiVersion, kind };
    }
  }
}

async function accountOf(cluster: Cluster): Promise<string> {
  await cluster.admin.create('/api/v1/namespaces', {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: ROOT_NAMESPACE },
  });
  const { token } = await underRole(cluster, 'weft-control-plane', { namespace: ROOT_NAMESPACE });
  return cluster.kubeconfig({ token });
}

async function measure(server: ApiServer, pods: number, made: AsyncDisposableStack): Promise<void> {
  const t = {
    teardown: (end: () => void | Promise<void>) => made.defer(end),
    log: (text: string) => show('log', text),
  };
  const cluster = new Cluster(server, t);
  const mesh = new BigMesh(pods);
  const begun = performance.now();
  const objects = await seed(server.etcdUrl, seeded(mesh));
  show(`${objects} objects written into etcd`, `${seconds(performance.now() - begun)} s`);
  const kubeconfig = await accountOf(cluster);
  const ca = await createCaKit(t);
  await ca.start({ WEFT_CA_SERVING_NAMES: `${ROOT_NAMESPACE}/istiod=127.0.0.1` });
  const token = join(ca.dir, 'token');
  const stateDir = join(ca.dir, 'control-plane');
  await mkdir(stateDir);
  await writeFile(token, await ca.issuer.mint(accountSubject(ROOT_NAMESPACE, 'istiod')));
  const plane = new Plane({
    WEFT_SOURCE: 'kubernetes',
    KUBECONFIG: kubeconfig,
    WEFT_LISTEN: '127.0.0.1:0',
    WEFT_STATE_DIR: stateDir,
    CA_ADDRESS: ca.address(),
    CA_ROOT_CA: ca.bundlePath,
    AUTH_TOKEN: token,
    LOG_FORMAT: 'json',
    RUST_LOG: 'info',
  });
  made.defer(() => plane.stop());
  const port = await plane.listening();
  show('ready after', `${seconds(performance.now() - plane.startedAtMs)} s`);
  await showTurns(plane, 'first sync');
  await showMemory(plane, 'memory after the first sync');
  await showIdleMemory(plane, 'memory idle');
  const built = await buildPushClient();
  if ('missing' in built) throw new Error(built.missing);
  const proxy = await cluster.token(ROOT_NAMESPACE, 'ztunnel', { audiences: ['istio-ca'] });
  const clients = new Clients(built.path, `https://127.0.0.1:${port}`, ca.bundlePath, proxy);
  made.defer(() => clients.stop());
  const opened = await clients.say(`open ${values.clients}`);
  show(`first sync of ${values.clients} clients`, `${seconds(opened.ms)} s, lost ${opened.lost}`);
  await change(plane, clients, 'one pod', 1, () => onePod(cluster, mesh));
  const wide = pods / 5 + 1;
  await change(plane, clients, `a Service of ${wide - 1} pods`, wide, () => wideService(cluster));
  await change(plane, clients, 'root STRICT', pods, () => rootStrict(cluster));
  await showMemory(plane, 'memory before the churn');
  await churned(plane, cluster, mesh, pods);
  await showIdleMemory(plane, 'memory idle after the churn');
  const proxyToken = join(ca.dir, 'proxy-token');
  await writeFile(proxyToken, proxy);
  await showFollowers(t, {
    address: `https://127.0.0.1:${port}`,
    rootCa: ca.bundlePath,
    token: proxyToken,
    namespace: ROOT_NAMESPACE,
    dir: ca.dir,
    workloads: pods,
    idleMs: IDLE_MS,
  });
  const { lost } = await clients.say('ages');
  show('clients lost', String(lost));
  for (const problem of plane.problems) show('log', problem);
  if (lost > 0) throw new LostError(`${lost} clients were lost`);
  await plane.stop();
  if (values.istiod) await measureIstiod(cluster);
}

async function change(
  plane: Plane,
  clients: Clients,
  what: string,
  resources: number,
  make: () => Promise<unknown>,
): Promise<void> {
  plane.begin();
  const begun = performance.now();
  const [{ lost }, madeMs] = await Promise.all([
    clients.say(`expect ${resources} ${ARRIVAL_LIMIT_S}`),
    make().then(() => performance.now() - begun),
  ]);
  const arrivedMs = performance.now() - begun - madeMs;
  show(
    `${what}: written, at all clients after`,
    `${madeMs.toFixed(0)}, ${arrivedMs.toFixed(0)} ms, lost ${lost}`,
  );
  await showTurns(plane, what);
}

function onePod(cluster: Cluster, mesh: BigMesh): Promise<unknown> {
  const [pod] = JSON.parse(mesh.pod(7, { ready: false })) as [
    { readonly metadata: { namespace: string; name: string }; readonly status: object },
  ];
  const { namespace, name } = pod.metadata;
  return cluster.admin.request({
    method: 'PATCH',
    path: `/api/v1/namespaces/${namespace}/pods/${name}/status`,
    contentType: 'application/merge-patch+json',
    body: { status: pod.status },
  });
}

function wideService(cluster: Cluster): Promise<unknown> {
  return cluster.admin.create('/api/v1/namespaces/ns-0/services', {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'wide', namespace: 'ns-0' },
    spec: { clusterIP: 'None', selector: { team: 'team-0' }, ports: [{ port: 80 }] },
  });
}

function rootStrict(cluster: Cluster): Promise<unknown> {
  return cluster.apply({
    apiVersion: 'security.istio.io/v1',
    kind: 'PeerAuthentication',
    metadata: { name: 'default', namespace: ROOT_NAMESPACE },
    spec: { mtls: { mode: 'STRICT' } },
  });
}

async function churned(plane: Plane, cluster: Cluster, mesh: BigMesh, pods: number): Promise<void> {
  const samples: number[] = [];
  const sample = async (): Promise<void> => {
    samples.push((await plane.memory()).privateMb);
  };
  const before = await plane.report();
  plane.begin();
  const timer = setInterval(() => void sample(), MEMORY_SAMPLE_MS);
  const options = { pods, perSecond: Number(values.rate), seconds: Number(values.seconds) };
  const { changes, failed, problem } = await churn(cluster.admin, mesh, options);
  clearInterval(timer);
  await sample();
  show(`churn of ${values.seconds} s`, `${changes} changes, ${failed} failed ${problem ?? ''}`);
  const third = Math.ceil(samples.length / 3);
  const thirds = [0, 1, 2].map((part) => samples.slice(part * third, (part + 1) * third));
  show(
    '  private memory, least and most of each third',
    thirds
      .filter(({ length }) => length > 0)
      .map((part) => `${Math.min(...part).toFixed(0)}–${Math.max(...part).toFixed(0)}`)
      .join(', '),
  );
  const { cpuMs } = await plane.report();
  show('  processor time', `${seconds(cpuMs - before.cpuMs)} s`);
  await showTurns(plane, 'churn');
  await showMemory(plane, 'memory after the churn');
  if (failed > 0) throw new LostError(`${failed} changes failed: ${problem}`);
}

async function showFollowers(
  made: Parameters<typeof measureFollowers>[0],
  followed: Followed,
): Promise<void> {
  const { takeoverMs, proxy, emptyProxy } = await measureFollowers(made, followed);
  show('takeover of a killed ingester after', `${seconds(takeoverMs)} s`);
  const told = (memory: Memory): string =>
    `${memory.residentMb.toFixed(1)}, ${memory.privateMb.toFixed(1)} MB`;
  show('node proxy idle: resident, private', told(proxy));
  show('  with a Redis without workloads', told(emptyProxy));
  const bytes = ((proxy.privateMb - emptyProxy.privateMb) * BYTES_PER_MB) / followed.workloads;
  show('  bytes for each workload', bytes.toFixed(0));
}

/** The same of an istiod on the same objects, as far as it does the same. */
async function measureIstiod(cluster: Cluster): Promise<void> {
  const built = await goProgram('istiod', { tags: ISTIOD_TAGS, timeoutMs: BUILD_TIMEOUT_MS });
  const client = await buildPushClient();
  if ('missing' in built) throw new Error(built.missing);
  if ('missing' in client) throw new Error(client.missing);
  const istiod = await Istiod.create(built.path, cluster.server);
  const begun = performance.now();
  await istiod.start();
  show('istiod: ready after', `${seconds(performance.now() - begun)} s`);
  const token = await cluster.token(ROOT_NAMESPACE, 'ztunnel', { audiences: ['istio-ca'] });
  const clients = new Clients(client.path, istiod.address, istiod.rootPath, token, ISTIOD_NAME);
  try {
    const opened = await clients.say(`open ${values.clients}`);
    show(`first sync of ${values.clients} clients`, `${seconds(opened.ms)} s, lost ${opened.lost}`);
    await sleep(IDLE_MS);
    const { residentMb, privateMb } = await memoryOf(istiod.pid);
    show('memory idle: resident, private', `${residentMb.toFixed(0)}, ${privateMb.toFixed(0)} MB`);
  } finally {
    clients.stop();
    await istiod.kill();
  }
}

async function showTurns(plane: Plane, what: string): Promise<void> {
  const { longestTurnMs, longestCpuMs, longestWorkMs, longestGcMs } = await plane.report();
  const all = [longestTurnMs, longestCpuMs, longestWorkMs, longestGcMs];
  const shown = all.map((ms) => ms.toFixed(1)).join(', ');
  show(`  ${what}: longest turn, cpu, without gc, gc`, `${shown} ms`);
}

async function showMemory(plane: Plane, what: string): Promise<void> {
  const { residentMb, privateMb } = await plane.memory();
  const { heapMb, externalMb } = await plane.report();
  show(
    `${what}: resident, private`,
    `${residentMb.toFixed(0)}, ${privateMb.toFixed(0)} MB (heap ${heapMb.toFixed(0)}, external ${externalMb.toFixed(0)})`,
  );
}

/** The process returns memory in its second check of being idle. */
async function showIdleMemory(plane: Plane, what: string): Promise<void> {
  await sleep(IDLE_MS);
  await showMemory(plane, what);
}

function seconds(ms: number): string {
  return (ms / 1_000).toFixed(1);
}

const pods = Number(values.pods);
process.stdout.write(`${pods} pods\n`);
const server = await startDefined();
if ('missing' in server || 'failed' in server) throw new Error(JSON.stringify(server));
await using made = new AsyncDisposableStack();
await measure(server, pods, made);
await made.disposeAsync();
// The API server ends with this process, which it keeps alive.
process.exit();

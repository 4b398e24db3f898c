/**
 * Serves delta ADS to the benchmark's clients with Weft's delta server, and plain bytes with a `node:http2` server of the
 * same process. The resources are made up; the control plane's mapping is not part of this.
 */
import { createSecureServer } from 'node:http2';
import type { ServerHttp2Stream } from 'node:http2';
import { mkdtemp } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { TimeSlice } from '../../../lib/async/time-slice.ts';
import { systemClock } from '../../../lib/clock/clock.ts';
import { bindGrpcServer, createGrpcServer } from '../../../lib/grpc/server.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import { MetricRegistry } from '../../../lib/metrics/registry.ts';
import { DeltaServer, MAX_REQUEST_BYTES, deltaService } from '../../../lib/xds/delta-server.ts';
import { ADDRESS_TYPE } from '../../../lib/xds/type-urls.ts';
import type { ServedResource } from '../../../lib/xds/wire.ts';
import { Debounce } from '../../../services/control-plane/debounce.ts';
import { makeServingPair } from '../../support/ads-server.ts';
import { plainResource } from '../../support/plain-resource.ts';
import { encode, service, workload } from '../../support/mesh-kit.ts';
import { Turns } from '../lib/turns.ts';
import type { ServerCommand, ServerReport, ServerStarted } from './messages.ts';

const WORKLOADS_OF_SERVICE = 20;
const PART_BYTES = 512 * 1024;
const MB = 1_048_576;
/** How exactly memory is seen. */
const MEMORY_INTERVAL_MS = 20;
const PREPARE_SLICE_MS = 10;

const resources = new Map<string, ServedResource>();
const changed = new Set<string>();
const turns = new Turns();
let largestRss = 0;
let cpuAtBegin = process.cpuUsage();
let churn: NodeJS.Timeout | null = null;
let edition = 0;

/** A workload as a pod of a busy cluster has it: about 370 bytes. */
function madeWorkload(index: number): Uint8Array {
  const namespace = `team-${index % 100}`;
  const app = `app-${Math.floor(index / WORKLOADS_OF_SERVICE)}`;
  return encode(
    workload({
      uid: `Kubernetes//Pod/${namespace}/${app}-7d9c5b8f4-${index}`,
      namespace,
      addresses: [`10.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`],
      node: `node-${index % 1_000}`,
      serviceAccount: app,
      canonicalName: app,
      canonicalRevision: `v${edition}`,
      workloadName: app,
      workloadType: 'pod',
      clusterId: 'Kubernetes',
      locality: { region: 'region-1', zone: 'zone-2', subzone: '' },
      services: { [`${namespace}/${app}.${namespace}.svc.cluster.local`]: { 80: 8080 } },
    }),
  );
}

function madeService(index: number): Uint8Array {
  const namespace = `team-${index % 100}`;
  const hostname = `app-${index}.${namespace}.svc.cluster.local`;
  return encode(service({ namespace, hostname, ports: { 80: 8080 + (edition % 10) } }));
}

function set(name: string, bytes: Uint8Array): void {
  resources.set(name, plainResource(name, `${edition}-${name.length}`, bytes));
  changed.add(name);
}

async function changeAll(workloads: number): Promise<void> {
  edition += 1;
  const slice = new TimeSlice(PREPARE_SLICE_MS);
  for (let index = 0; index < workloads; index += 1) {
    set(`Kubernetes//Pod/team-${index % 100}/pod-${index}`, madeWorkload(index));
    if (index % WORKLOADS_OF_SERVICE === 0) {
      const number = index / WORKLOADS_OF_SERVICE;
      set(`team-${number % 100}/app-${number}.svc`, madeService(number));
    }
    await slice.breathe();
  }
}

/** Writes the same bytes to each stream, as fast as it takes them. */
async function servePlain(credentials: { key: string; cert: string }): Promise<number> {
  const part = Buffer.alloc(PART_BYTES, 'x');
  const server = createSecureServer({ ...credentials, minVersion: 'TLSv1.3' });
  server.on('stream', (stream: ServerHttp2Stream, headers) => {
    stream.on('error', () => stream.close());
    stream.respond({ ':status': 200 });
    const total = headers[':path'] === '/bytes' ? totalBytes() : 1;
    let left = total;
    const write = (): void => {
      if (left <= 0) {
        stream.end();
        return;
      }
      const size = Math.min(left, PART_BYTES);
      left -= size;
      stream.write(part.subarray(0, size), write);
    };
    write();
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  return (server.address() as AddressInfo).port;
}

function totalBytes(): number {
  let bytes = 0;
  for (const { name, version, bytes: content } of resources.values()) {
    bytes += content.length + name.length + version.length + ADDRESS_TYPE.length + 15;
  }
  return bytes;
}

const dir = await mkdtemp(join(tmpdir(), 'weft-pushes-'));
const rootCa = join(dir, 'root.pem');
const pair = await makeServingPair(rootCa, []);
const metrics = new MetricRegistry();
const delta = new DeltaServer({
  source: { get: (_type, name) => resources.get(name) },
  authenticate: () =>
    Promise.resolve({
      namespace: 'istio-system',
      serviceAccount: { name: 'ztunnel', uid: '' },
      pod: null,
      node: null,
      validUntilMs: Infinity,
    }),
  accounts: ['istio-system/ztunnel'],
  ready: () => true,
  // The rate of new streams is not what is measured.
  streamsPerSecond: 100_000,
  maxStreamAgeMs: 3_600_000,
  pushThrottle: Math.min(15 + 5 * availableParallelism(), 100),
  clock: systemClock,
  log: createLogger({ actor: 'server', level: 'error' }),
  metrics,
});
const push = async (): Promise<void> => {
  const names = new Set(changed);
  changed.clear();
  await delta.push(new Map([[ADDRESS_TYPE, names]]));
};
const debounce = new Debounce({ quietMs: 100, maxMs: 1_000 }, systemClock, push);
const grpc = createGrpcServer(MAX_REQUEST_BYTES);
grpc.addService(deltaService, delta.handlers());
const port = await bindGrpcServer(
  grpc,
  { kind: 'tcp', host: '127.0.0.1', port: 0 },
  pair.credentials,
);
const plainPort = await servePlain({ key: pair.keyPem, cert: pair.chainPem });

function changeOne(): void {
  edition += 1;
  const index = edition % (resources.size / 2);
  set(`Kubernetes//Pod/team-${index % 100}/pod-${index}`, madeWorkload(index));
  debounce.report();
}

function probe(): void {
  const madeUs = Math.round((performance.timeOrigin + performance.now()) * 1_000);
  resources.set('probe', plainResource('probe', String(madeUs), Buffer.from('probe')));
  changed.add('probe');
  debounce.report();
}

async function obey(command: ServerCommand): Promise<void> {
  switch (command.do) {
    case 'load':
      await changeAll(command.workloads);
      return push();
    case 'change-all':
      return changeAll(command.workloads);
    case 'push':
      begin();
      return push();
    case 'probe':
      return probe();
    case 'churn':
      clearInterval(churn ?? undefined);
      churn = command.perSecond === 0 ? null : setInterval(changeOne, 1_000 / command.perSecond);
      return;
    case 'begin':
      globalThis.gc?.();
      await turn();
      return begin();
    case 'report':
  }
}

function begin(): void {
  turns.begin();
  largestRss = process.memoryUsage.rss();
  cpuAtBegin = process.cpuUsage();
}

async function report(): Promise<ServerReport> {
  const cpu = process.cpuUsage(cpuAtBegin);
  return {
    resources: resources.size,
    streams: delta.size,
    ...(await turns.longest()),
    cpuMs: (cpu.user + cpu.system) / 1_000,
    rssMb: process.memoryUsage.rss() / MB,
    largestRssMb: largestRss / MB,
  };
}

setInterval(() => {
  largestRss = Math.max(largestRss, process.memoryUsage.rss());
}, MEMORY_INTERVAL_MS);
process.on('message', (command: ServerCommand) => {
  void obey(command).then(async () => process.send?.(await report()));
});
process.once('disconnect', () => process.exit());
const started: ServerStarted = {
  address: `https://127.0.0.1:${port}`,
  plainAddress: `https://127.0.0.1:${plainPort}`,
  rootCa,
};
process.send?.(started);

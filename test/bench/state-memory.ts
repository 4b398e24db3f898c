/**
 * Measures the memory of the mesh state in a node-proxy: `node test/bench/state-memory.ts --workloads 0,100000 --services 5000`.
 * Every size runs in a process of its own, with the launcher's options. The state engine gets the rows as from Redis. Before the
 * measurement all garbage is collected, and free memory returned, as an idle process does.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { systemClock } from '../../lib/clock/clock.ts';
import { createLogger } from '../../lib/log/logger.ts';
import type { Workload } from '../../lib/state/model.ts';
import { decodeAddress, encodeService, encodeWorkload } from '../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import { packRows } from '../../services/node-proxy/state-thread/packed-rows.ts';
import type { Row } from '../../services/node-proxy/state-thread/packed-rows.ts';
import { releaseFreeMemory } from '../../lib/linux/process.ts';
import { StateEngine } from '../../services/node-proxy/state-thread/state-engine.ts';
import { serviceFixture, workloadFixture } from '../support/model-fixtures.ts';

const PAGE = 256;
const NAMESPACES = 500;
const NODES = 1_000;

const { values } = parseArgs({
  options: {
    workloads: { type: 'string', default: '0,100000' },
    services: { type: 'string', default: '5000' },
    one: { type: 'string' },
  },
});
const services = Number(values.services);

const hostname = (index: number): string =>
  `service-${index}.namespace-${index % NAMESPACES}.svc.cluster.local`;

function workloadRow(index: number): Row {
  const namespace = `namespace-${index % NAMESPACES}`;
  // As a Deployment names its pods.
  const suffix = (index * 2_654_435_761).toString(36).slice(-5);
  const name = `deployment-${index % services}-7d9f8b6c5d-${suffix}${index % 10}`;
  const uid = `Kubernetes//Pod/${namespace}/${name}`;
  const service = `namespace-${(index % services) % NAMESPACES}/${hostname(index % services)}`;
  const workload: Workload = workloadFixture({
    uid,
    name,
    namespace,
    addresses: [`10.${100 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`],
    serviceAccount: `account-${index % services}`,
    workloadName: `deployment-${index % services}`,
    canonicalName: `deployment-${index % services}`,
    node: `node-${index % NODES}`,
    clusterId: 'Kubernetes',
    services: { [service]: { 80: 8_080 } },
  });
  return { key: uid, value: encodeWorkload(workload) };
}

function serviceRow(index: number): Row {
  const namespace = `namespace-${index % NAMESPACES}`;
  const service = serviceFixture({
    name: `service-${index}`,
    namespace,
    hostname: hostname(index),
    addresses: [{ network: '', ip: `10.96.${index >> 8}.${index & 255}`, length: null }],
  });
  return { key: `${namespace}/${hostname(index)}`, value: encodeService(service) };
}

/** Private memory of this process, in bytes. */
async function privateBytes(): Promise<number> {
  const rollup = await readFile('/proc/self/smaps_rollup', 'utf8');
  const kib = [...rollup.matchAll(/^Private_(?:Clean|Dirty): +(\d+) kB$/gm)];
  return kib.reduce((sum, [, value]) => sum + Number(value) * 1_024, 0);
}

async function measure(workloads: number): Promise<void> {
  const engine = new StateEngine(
    {
      node: 'node-1',
      dedicatedTo: null,
      logLevel: 'silent',
      logFormat: 'json',
      policyUnknownReference: 'deny',
    },
    {
      clock: systemClock,
      log: createLogger({ actor: 'bench', level: 'silent' }),
      decodeAddress,
      decodeAuthorization,
      identitiesChanged: () => undefined,
      want: () => undefined,
    },
  );
  for (const table of ['authorizations', 'rejections'] as const) {
    await engine.feed(table, { kind: 'reset' });
    await engine.feed(table, { kind: 'synced' });
  }
  await engine.feed('addresses', { kind: 'reset' });
  let bytes = 0;
  const feed = async (count: number, row: (index: number) => Row): Promise<void> => {
    for (let start = 0; start < count; start += PAGE) {
      const length = Math.min(PAGE, count - start);
      const rows = Array.from({ length }, (_, index) => row(start + index));
      bytes += rows.reduce((sum, { value }) => sum + (value?.length ?? 0), 0);
      // As over a port: the keys are copies, and the values one buffer.
      await engine.feed('addresses', {
        kind: 'entries',
        rows: structuredClone(packRows(rows)),
      });
    }
  };
  await feed(services, serviceRow);
  await feed(workloads, workloadRow);
  await engine.feed('addresses', { kind: 'synced' });
  for (let round = 0; round < 4; round += 1) {
    globalThis.gc?.({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  }
  await releaseFreeMemory();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  const result = { workloads, bytes, heapUsed, arrayBuffers, private: await privateBytes() };
  process.stdout.write(JSON.stringify(result));
  if (engine.stats().workloads !== workloads) throw new Error('rows are missing');
  engine.close();
}

interface Measured {
  readonly workloads: number;
  readonly bytes: number;
  readonly heapUsed: number;
  readonly arrayBuffers: number;
  readonly private: number;
}

async function inProcess(workloads: number): Promise<Measured> {
  const args = ['--max-semi-space-size=1', '--expose-gc', import.meta.filename];
  const child = spawn(
    process.execPath,
    [...args, '--one', String(workloads), '--services', String(services)],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const [output] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  return JSON.parse(output) as Measured;
}

if (values.one !== undefined) {
  await measure(Number(values.one));
} else {
  const sizes = values.workloads.split(',').map(Number);
  const measured: Measured[] = [];
  for (const size of sizes) measured.push(await inProcess(size));
  const mb = (bytes: number): string => (bytes / 1_000_000).toFixed(1).padStart(9);
  process.stdout.write('workloads  encoded MB  heap MB  buffers MB  private MB  bytes each\n');
  for (const one of measured) {
    const [base] = measured;
    const more = one.workloads - (base?.workloads ?? 0);
    const each = more === 0 ? '' : ((one.private - (base?.private ?? 0)) / more).toFixed(0);
    process.stdout.write(
      `${String(one.workloads).padStart(9)}  ${mb(one.bytes)} ${mb(one.heapUsed)}   ${mb(one.arrayBuffers)}   ${mb(one.private)}  ${each.padStart(10)}\n`,
    );
  }
}

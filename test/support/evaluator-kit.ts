/** A Redis with mesh state in it, and policy-evaluator processes on it. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { rm } from 'node:fs/promises';
import type { ExecutionContext } from 'ava';
import { request } from '../../lib/http/node-http.ts';
import type { TableName } from '../../lib/bus/contract.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { TableWriter } from '../../lib/bus/table-writer.ts';
import type { WorkQueue } from '../../lib/bus/work-queue.ts';
import { policyExplain } from '../../lib/bus/catalog.ts';
import type { ExplainRequest } from '../../lib/policy/explain.ts';
import type { Authorization } from '../../lib/policy/model.ts';
import type { Service, Workload } from '../../lib/state/model.ts';
import { encodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import { resourceName } from '../../lib/xds/resources/address.ts';
import { bareEnvironment } from './bare-environment.ts';
import { TableCopy, heldLease, openBus } from './bus.ts';
import { encode } from './mesh-kit.ts';
import { startTestRedis } from './redis.ts';
import type { TestRedis } from './redis.ts';
import { until } from './until.ts';
import { makeScratch } from './leftovers.ts';

const HOST = fileURLToPath(new URL('./evaluator-process.ts', import.meta.url));

/** A running evaluator process. */
export interface EvaluatorProcess {
  readonly child: ChildProcess;
  output(): string;
  get(path: string): Promise<{ status: number; body: string }>;
  ready(): Promise<void>;
  kill(): Promise<void>;
}

/** Everything a test of the evaluator needs. */
export interface EvaluatorKit {
  readonly redis: TestRedis;
  /** As `admin`. */
  readonly bus: Bus;
  readonly explains: WorkQueue<ExplainRequest>;
  /** The programs that are published. */
  readonly programs: TableCopy;
  /** Writes rows as the ingester does. */
  write(table: TableName, rows: Readonly<Record<string, Uint8Array | null>>): Promise<void>;
  writePolicies(policies: Readonly<Record<string, Authorization | null>>): Promise<void>;
  writeMesh(...resources: readonly (Workload | Service)[]): Promise<void>;
  /** Writes all tables of the ingester anew, as after a loss of Redis. */
  replaceAll(): Promise<void>;
  start(environment?: Readonly<Record<string, string>>): Promise<EvaluatorProcess>;
}

/** Starts a Redis with empty tables. */
export async function createEvaluatorKit(t: ExecutionContext): Promise<EvaluatorKit> {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config());
  await until(() => bus.connected, { what: 'Redis' });
  const lease = await heldLease(bus, 'ingest', 'mesh');
  const names = ['addresses', 'authorizations', 'rejections'] as const;
  const writers = new Map<TableName, TableWriter>();
  const contents = new Map<TableName, Map<string, Uint8Array>>();
  for (const name of names) {
    writers.set(name, bus.writer(name, 'mesh', lease));
    contents.set(name, new Map());
  }
  const replaceAll = async (): Promise<void> => {
    for (const name of names) await writers.get(name)?.replaceAll(contents.get(name) ?? []);
  };
  await replaceAll();
  const explains = bus.queue(policyExplain, 'mesh');
  await until(
    async () => {
      await explains.remove('none');
      return true;
    },
    { what: 'the queue' },
  );
  const programs = new TableCopy();
  bus.reader('programs', 'mesh', programs);
  const write: EvaluatorKit['write'] = async (table, rows) => {
    for (const [key, value] of Object.entries(rows)) {
      if (value === null) contents.get(table)?.delete(key);
      else contents.get(table)?.set(key, value);
    }
    const changes = Object.entries(rows).map(([key, value]) => ({ key, value }));
    await writers.get(table)?.apply(changes);
  };
  return {
    redis,
    bus,
    explains,
    programs,
    write,
    replaceAll,
    writePolicies: (policies) =>
      write(
        'authorizations',
        Object.fromEntries(
          Object.entries(policies).map(([key, item]) => [
            key,
            item === null ? null : encodeAuthorization(item),
          ]),
        ),
      ),
    writeMesh: (...resources) =>
      write(
        'addresses',
        Object.fromEntries(resources.map((item) => [resourceName(item), encode(item)])),
      ),
    start: (environment) => startProcess(t, redis, environment ?? {}),
  };
}

async function startProcess(
  t: ExecutionContext,
  redis: TestRedis,
  environment: Readonly<Record<string, string>>,
): Promise<EvaluatorProcess> {
  const dir = await makeScratch('evaluator');
  const socketPath = join(dir, 'admin.sock');
  const child = spawn(process.execPath, [HOST], {
    env: bareEnvironment({
      ...redis.environment('policy-evaluator'),
      WEFT_ADMIN_ADDRESS: `unix:${socketPath}`,
      ...environment,
    }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  t.teardown(async () => {
    child.kill('SIGKILL');
    await rm(dir, { recursive: true, force: true });
  });
  const get = (path: string): Promise<{ status: number; body: string }> =>
    new Promise((resolve, reject) => {
      request({ socketPath, path }, (response) => {
        let body = '';
        response.on('data', (chunk: Buffer) => (body += chunk.toString()));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
      })
        .on('error', reject)
        .end();
    });
  return {
    child,
    output: () => output,
    get,
    ready: async () => {
      await until(async () => (await get('/healthz/ready')).status === 200, {
        what: 'the evaluator to be ready',
        timeoutMs: 30_000,
      });
    },
    kill: async () => {
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
    },
  };
}

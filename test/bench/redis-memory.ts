/**
 * Measures the Redis memory of a mesh with many pods. `node test/bench/redis-memory.ts [pods]` (100,000) fills the address
 * table as the ingester does and prints the memory that the server reports.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { systemClock } from '../../lib/clock/clock.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
import { redisUsers } from '../../lib/bus/acl.ts';
import { writeAclFiles } from '../../lib/bus/acl-files.ts';
import { startPrivateRedis } from '../support/private-redis.ts';
import { createLogger } from '../../lib/log/logger.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import { encodeWorkload } from '../../lib/xds/resources/address.ts';
import { workloadFixture } from '../support/model-fixtures.ts';
import { until } from '../support/until.ts';

const pods = Number(process.argv[2] ?? 100_000);
const dir = await mkdtemp(join(tmpdir(), 'weft-redis-'));
const aclFile = join(dir, 'users.acl');
const users = [...redisUsers(['node-1']), { name: 'admin', role: 'admin', node: null } as const];
const { passwordFiles } = await writeAclFiles({
  users,
  prefix: 'weft',
  secretsDir: join(dir, 'secrets'),
  aclFile,
});
const socketPath = join(dir, 'redis.sock');
const server = await startPrivateRedis({ socketPath, dataDir: join(dir, 'data'), aclFile });
const bus = connectBus(
  {
    endpoint: { kind: 'unix', path: socketPath },
    username: 'admin',
    passwordFile: passwordFiles.get('admin') ?? null,
    caFile: null,
    prefix: 'weft',
  },
  {
    log: createLogger({ actor: 'bench', level: 'error' }),
    clock: systemClock,
    metrics: new MetricRegistry(),
    name: 'bench',
  },
);
try {
  await until(() => bus.connected, { what: 'Redis' });
  const lease = bus.lease('ingest', 'mesh');
  await until(() => lease.held, { what: 'the lease' });
  const writer = bus.writer('addresses', 'mesh', lease);
  const started = performance.now();
  await writer.replaceAll(
    Array.from({ length: pods }, (_, index) => {
      const uid = `Kubernetes//Pod/namespace-${index % 500}/workload-${index % 2_000}-${randomBytes(5).toString('hex')}`;
      const ip = `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`;
      return [uid, encodeWorkload(workloadFixture({ uid, addresses: [ip] }))] as const;
    }),
  );
  const seconds = (performance.now() - started) / 1_000;
  const password = readFileSync(passwordFiles.get('admin') ?? '', 'utf8').trim();
  const client = new Redis({ path: socketPath, username: 'admin', password });
  const info = await client.info('memory');
  client.disconnect();
  const mib = Number(/^used_memory:(\d+)/m.exec(info)?.[1]) / 1_048_576;
  process.stdout.write(
    `${pods} pods: ${mib.toFixed(1)} MiB of Redis, written in ${seconds.toFixed(1)} s\n`,
  );
} finally {
  await bus.close();
  await server.kill();
  await rm(dir, { recursive: true });
}

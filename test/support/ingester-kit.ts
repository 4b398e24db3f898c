/** A real ingester between a real ADS server and a real Redis, and a node-proxy's view of the result. */
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { TableName } from '../../lib/bus/contract.ts';
import type { Authorization } from '../../lib/policy/model.ts';
import { encodeService, encodeWorkload } from '../../lib/xds/resources/address.ts';
import { encodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../lib/xds/type-urls.ts';
import { definition } from '../../services/xds-ingester/xds-ingester-actor.ts';
import { startActor } from './actor-context.ts';
import type { TestActor } from './actor-context.ts';
import { startAdsServer } from './ads-server.ts';
import type { AdsServer } from './ads-server.ts';
import { TableCopy, openBus } from './bus.ts';
import { serviceFixture, workloadFixture } from './model-fixtures.ts';
import { startTestRedis } from './redis.ts';
import type { TestRedis } from './redis.ts';
import { until } from './until.ts';

/** The parts that a test uses. */
export interface IngesterKit {
  readonly redis: TestRedis;
  readonly ads: AdsServer;
  /** As a node-proxy sees the tables. */
  readonly tables: Readonly<Record<'addresses' | 'authorizations' | 'rejections', TableCopy>>;
  start(environment?: Readonly<Record<string, string>>): Promise<TestActor>;
  /** Waits until a table holds exactly these keys. */
  holds(
    table: 'addresses' | 'authorizations' | 'rejections',
    keys: readonly string[],
  ): Promise<void>;
}

/** Starts Redis, the server and the readers; the ingester is started by the test. */
export async function createIngesterKit(t: ExecutionContext): Promise<IngesterKit> {
  const redis = await startTestRedis(t);
  return { ...(await createKitOver(t, redis)), redis };
}

/** The same over a Redis that the test has. */
export async function createKitOver(
  t: ExecutionContext,
  redis: Pick<TestRedis, 'config' | 'environment'>,
): Promise<Omit<IngesterKit, 'redis'>> {
  const ads = await startAdsServer(t, ['istiod.test']);
  const { bus } = openBus(t, redis.config('node-proxy.node-1'), 'node-proxy');
  const follow = (table: TableName): TableCopy => {
    const copy = new TableCopy();
    bus.reader(table, 'mesh', copy);
    return copy;
  };
  const tables = {
    addresses: follow('addresses'),
    authorizations: follow('authorizations'),
    rejections: follow('rejections'),
  };
  return {
    ads,
    tables,
    start: (environment = {}) => {
      const config = definition.config.parse({
        ...redis.environment('xds-ingester'),
        XDS_ADDRESS: ads.address,
        XDS_ROOT_CA: ads.rootPath,
        AUTH_TOKEN: 'token-1',
        POD_NAME: 'ingester-0',
        POD_NAMESPACE: 'weft-system',
        NODE_NAME: 'node-1',
        ...environment,
      });
      return startActor(t, definition.create(config), 'xds-ingester');
    },
    holds: async (table, keys) => {
      const wanted = [...keys].sort().join(' ');
      await until(() => tables[table].copies > 0 && held(tables[table]) === wanted, {
        what: `${table} to hold ${wanted === '' ? 'nothing' : wanted}`,
        timeoutMs: 20_000,
      });
    },
  };
}

function held(copy: TableCopy): string {
  return [...copy.rows.keys()].sort().join(' ');
}

/** Serves a workload. */
export function serveWorkload(ads: AdsServer, uid: string, version: string, ip = '10.0.0.1'): void {
  ads.set(ADDRESS_TYPE, uid, version, encodeWorkload(workloadFixture({ uid, addresses: [ip] })));
}

/** Serves a service `demo/<name>.test`. */
export function serveService(ads: AdsServer, name: string, version: string): void {
  const service = serviceFixture({ name, namespace: 'demo', hostname: `${name}.test` });
  ads.set(ADDRESS_TYPE, `demo/${name}.test`, version, encodeService(service));
}

/** Serves a policy `demo/<name>` that denies everything. */
export function servePolicy(ads: AdsServer, name: string, version: string): void {
  const policy: Authorization = {
    name,
    namespace: 'demo',
    scope: 'NAMESPACE',
    action: 'DENY',
    rules: [],
    dryRun: false,
  };
  ads.set(AUTHORIZATION_TYPE, `demo/${name}`, version, encodeAuthorization(policy));
}

/** A path in the kit's own folder. */
export function kitPath(kit: Pick<IngesterKit, 'ads'>, name: string): string {
  return join(kit.ads.dir, name);
}

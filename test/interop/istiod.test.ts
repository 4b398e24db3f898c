/** Tests the ingester and the certificate fetcher on an unmodified istiod. */
import { X509Certificate } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { decodeAddress } from '../../lib/xds/resources/address.ts';
import { ADDRESS_TYPE } from '../../lib/xds/type-urls.ts';
import { CertFetcherActor } from '../../services/cert-fetcher/cert-fetcher-actor.ts';
import { certFetcherConfig } from '../../services/cert-fetcher/config.ts';
import { definition } from '../../services/xds-ingester/xds-ingester-actor.ts';
import { pod } from '../kubernetes/support/objects.ts';
import { startActor } from '../support/actor-context.ts';
import type { TestActor } from '../support/actor-context.ts';
import { openBus } from '../support/bus.ts';
import { RowsCopy } from '../support/rows-copy.ts';
import { startManager } from '../support/certificates-kit.ts';
import { makeScratch } from '../support/leftovers.ts';
import { startTestRedis } from '../support/redis.ts';
import type { TestRedis } from '../support/redis.ts';
import { until } from '../support/until.ts';
import { NODE, READER_POD, istioSuite, readerToken } from './support/istio-cluster.ts';
import type { IstioCluster } from './support/istio-cluster.ts';
import { ISTIOD_NAME, ROOT_NAMESPACE } from './support/istiod.ts';

interface Rig {
  readonly redis: TestRedis;
  readonly tokenPath: string;
  readonly ingester: TestActor;
  readonly addresses: RowsCopy;
  readonly authorizations: RowsCopy;
  readonly names: RowsCopy;
  /** Asks for addresses by name, as a node-proxy does. */
  want(...names: string[]): Promise<void>;
  /** Waits until the tables have a row, or have it no more. */
  has(
    table: 'addresses' | 'authorizations' | 'names',
    key: string,
    wanted?: boolean,
  ): Promise<void>;
}

async function follow(
  t: ExecutionContext,
  { cluster, istiod }: IstioCluster,
  environment: Readonly<Record<string, string>> = {},
): Promise<Rig> {
  const redis = await startTestRedis(t);
  const tokenPath = join(await makeScratch('token'), 'istio-token');
  await writeFile(tokenPath, await readerToken(cluster));
  const { bus } = openBus(t, redis.config(`node-proxy.${NODE}`), 'node-proxy');
  const tables = {
    addresses: new RowsCopy(),
    authorizations: new RowsCopy(),
    names: new RowsCopy(),
  };
  bus.reader('names', 'mesh', tables.names);
  bus.reader('addresses', 'mesh', tables.addresses);
  bus.reader('authorizations', 'mesh', tables.authorizations);
  const config = definition.config.parse({
    ...redis.environment('xds-ingester'),
    XDS_ADDRESS: istiod.address,
    ALT_XDS_HOSTNAME: ISTIOD_NAME,
    XDS_ROOT_CA: istiod.rootPath,
    AUTH_TOKEN: tokenPath,
    POD_NAME: READER_POD,
    POD_NAMESPACE: ROOT_NAMESPACE,
    ...environment,
  });
  const ingester = await startActor(t, definition.create(config), 'xds-ingester');
  return {
    redis,
    tokenPath,
    ingester,
    ...tables,
    want: (...names) => bus.want(names),
    has: async (table, key, wanted = true) => {
      await until(() => tables[table].rows.has(key) === wanted, {
        what: `${table} ${wanted ? 'to have' : 'not to have'} ${key}`,
      });
    },
  };
}

await istioSuite('istiod', (test) => {
  test('the ingester follows it through changes and its death', async (t, parts) => {
    const { cluster, istiod } = parts;
    const shop = await cluster.namespace('shop');
    const uid = (name: string): string => `Kubernetes//Pod/${shop}/${name}`;
    const web = (ready: boolean): ReturnType<typeof pod> =>
      pod(shop, 'web', { ip: '10.244.0.10', labels: { app: 'web' }, account: 'web', ready });
    await cluster.apply(web(false));
    await cluster.applyText(`
apiVersion: v1
kind: Service
metadata: { name: web, namespace: ${shop} }
spec: { selector: { app: web }, ports: [{ name: http, port: 80, targetPort: http }] }
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: only-api, namespace: ${shop} }
spec: { rules: [{ from: [{ source: { serviceAccounts: [api] } }] }] }
`);
    const rig = await follow(t, parts);
    await rig.has('addresses', uid('web'));
    await rig.has('addresses', `${shop}/web.${shop}.svc.cluster.local`);
    await rig.has('authorizations', `${shop}/only-api`);
    const seen = (): string => {
      const row = rig.addresses.rows.get(uid('web'));
      const resource = row === undefined ? null : decodeAddress(row);
      return resource?.kind === 'workload' ? resource.workload.status : 'none';
    };
    t.is(seen(), 'UNHEALTHY');
    await cluster.apply(web(true));
    await until(() => seen() === 'HEALTHY', { what: 'the readiness of the pod' });

    await istiod.kill();
    await cluster.apply(pod(shop, 'api', { ip: '10.244.0.11', account: 'api' }));
    await cluster.delete(web(true));
    t.true(rig.addresses.rows.has(uid('web')), 'the state stays');
    await istiod.start();
    await rig.has('addresses', uid('api'));
    await rig.has('addresses', uid('web'), false);
    t.is(rig.addresses.copies, 1, 'nothing was replaced');
    const subscribed = rig.ingester.lines.findLast(
      (line) => line.message === 'xds.subscribed' && line['type'] === ADDRESS_TYPE,
    );
    t.true(Number(subscribed?.['held']) > 0, 'it resumed');
  });

  test('the ingester follows what is asked for, on demand', async (t, parts) => {
    const { cluster, istiod } = parts;
    const shop = await cluster.namespace('shop');
    const uid = (name: string): string => `Kubernetes//Pod/${shop}/${name}`;
    const far = (name: string, ip: string): ReturnType<typeof pod> =>
      pod(shop, name, { ip, labels: { app: name }, account: name, node: 'node-2' });
    await cluster.apply(far('web', '10.244.3.10'));
    await cluster.apply(far('other', '10.244.3.11'));
    await cluster.applyText(`
apiVersion: v1
kind: Service
metadata: { name: web, namespace: ${shop} }
spec: { selector: { app: web }, ports: [{ name: http, port: 80, targetPort: http }] }
`);
    const rig = await follow(t, parts, { XDS_ON_DEMAND: 'true' });
    const host = `${shop}/web.${shop}.svc.cluster.local`;
    await rig.has('names', '*');
    await rig.want(host);
    await rig.has('names', host);
    t.true(rig.addresses.rows.has(host));
    t.true(rig.addresses.rows.has(uid('web')), 'the service came with its workload');
    t.false(rig.addresses.rows.has(uid('other')));

    // An address is answered with the workload, whose only other name is the alias.
    await rig.want('/10.244.3.11', '/10.244.3.99');
    await rig.has('names', '/10.244.3.11');
    t.true(rig.addresses.rows.has(uid('other')));
    await rig.has('names', '/10.244.3.99');

    await istiod.kill();
    await cluster.delete(far('other', '10.244.3.11'));
    await istiod.start();
    await rig.has('addresses', uid('other'), false);
    // The names are asked for again. istiod may tell of the pod's end before it knows all others.
    await rig.has('addresses', uid('web'));
    // istiod does not tell of a resource that appears under an address, so that the ingester asks again.
    await cluster.apply(far('late', '10.244.3.99'));
    await until(() => rig.addresses.rows.has(uid('late')), {
      what: 'the workload at the address that was free',
      timeoutMs: 60_000,
    });
  });

  test('its CA signs for the pods of the node, with a token that is read for each request', async (t, parts) => {
    const { cluster, istiod } = parts;
    const shop = await cluster.namespace('shop');
    for (const [index, account] of ['web', 'api', 'late'].entries()) {
      const ip = `10.244.1.${10 + index}`;
      await cluster.apply(pod(shop, account, { ip, account }));
    }
    await cluster.apply(pod(shop, 'far', { ip: '10.244.2.9', account: 'far', node: 'node-2' }));
    const rig = await follow(t, parts);
    const config = certFetcherConfig.parse({
      ...rig.redis.environment(`cert-fetcher.${NODE}`),
      CA_ADDRESS: istiod.address,
      CA_ROOT_CA: istiod.rootPath,
      ALT_CA_HOSTNAME: ISTIOD_NAME,
      CA_HEADER_TEAM: 'shop',
      AUTH_TOKEN: rig.tokenPath,
    });
    await startActor(t, new CertFetcherActor(config), 'cert-fetcher', NODE);
    const user = await startManager(t, { bundlePath: istiod.rootPath }, rig.redis, NODE);
    const identity = (account: string): string => `spiffe://cluster.local/ns/${shop}/sa/${account}`;
    const refusal = async (account: string, reason: RegExp): Promise<void> => {
      user.manager.want(identity(account), 'realTime');
      await until(
        () =>
          user.unavailable.some(
            ([of, { message }]) => of === identity(account) && reason.test(message),
          ),
        { what: String(reason) },
      );
    };
    const certificate = await user.available(identity('web'));
    const leaf = new X509Certificate(certificate.chainPem);
    t.is(leaf.subjectAltName, `URI:${identity('web')}`);
    t.true(leaf.checkPrivateKey(certificate.key));
    await refusal('far', /no workload with the identity/);

    const good = await readerToken(cluster);
    await writeFile(rig.tokenPath, await cluster.token(shop, 'web', { audiences: ['istio-ca'] }));
    await refusal('api', /refused/);
    await writeFile(rig.tokenPath, good);
    await user.available(identity('late'));
    await user.available(identity('api'));
    t.pass();
  });
});

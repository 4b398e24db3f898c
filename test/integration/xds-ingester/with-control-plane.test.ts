/** Tests the state path of a mesh: manifests → control plane (certified by the CA) → ingester → Redis → a node-proxy's copy. */
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { request } from '../../../lib/http/node-http.ts';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import { ADDRESS_TYPE } from '../../../lib/xds/type-urls.ts';
import { controlPlaneConfig } from '../../../services/control-plane/config.ts';
import { ControlPlaneActor } from '../../../services/control-plane/control-plane-actor.ts';
import { definition } from '../../../services/xds-ingester/xds-ingester-actor.ts';
import { startActor } from '../../support/actor-context.ts';
import { TableCopy, openBus } from '../../support/bus.ts';
import { createCaKit } from '../../support/ca-kit.ts';
import type { CaKit } from '../../support/ca-kit.ts';
import { ownPort } from '../../support/ports.ts';
import { startTestRedis } from '../../support/redis.ts';
import { accountSubject } from '../../support/token-issuer.ts';
import { until } from '../../support/until.ts';

interface Plane {
  readonly port: number;
  stop(): Promise<void>;
}

async function startPlane(t: ExecutionContext, ca: CaKit, port: number): Promise<Plane> {
  const config = controlPlaneConfig.parse({
    WEFT_LISTEN: `127.0.0.1:${port}`,
    WEFT_CONTROL_PLANE_API_SOCKET: join(ca.dir, 'manifests.sock'),
    WEFT_STATE_DIR: join(ca.dir, 'control'),
    CA_ADDRESS: ca.address(),
    CA_ROOT_CA: ca.bundlePath,
    AUTH_TOKEN: await ca.issuer.mint(accountSubject('istio-system', 'istiod')),
    WEFT_TOKEN_JWKS_PATH: join(ca.dir, 'jwks.json'),
  });
  const actor = new ControlPlaneActor(config);
  const running = await startActor(t, actor, 'control-plane');
  const bound = await until(() => actor.port, { what: 'the control plane', timeoutMs: 20_000 });
  return { port: bound, stop: running.stop };
}

function apply(ca: CaKit, objects: readonly unknown[]): Promise<number> {
  const body = JSON.stringify({
    documents: objects.map((object, index) => ({ source: 'test', index, object })),
  });
  return new Promise((resolve, reject) => {
    const call = request(
      { socketPath: join(ca.dir, 'manifests.sock'), path: '/apply', method: 'POST' },
      (response) => {
        response.resume();
        response.once('end', () => resolve(response.statusCode ?? 0));
      },
    );
    call.once('error', reject);
    call.end(body);
  });
}

const service = (name: string): unknown => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name, namespace: 'demo' },
  spec: { ports: [{ port: 80, targetPort: 8080 }], selector: { app: name } },
});

const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'demo' } };

const policy = {
  apiVersion: 'security.istio.io/v1',
  kind: 'AuthorizationPolicy',
  metadata: { name: 'deny-all', namespace: 'demo' },
  spec: { action: 'DENY', rules: [{}] },
};

test('manifests become rows, and survive the restart of the control plane and of Redis', async (t) => {
  const redis = await startTestRedis(t);
  const ca = await createCaKit(t);
  await ca.start({ WEFT_CA_SERVING_NAMES: 'istio-system/istiod=istiod.istio-system.svc' });
  const port = await ownPort();
  const plane = await startPlane(t, ca, port);
  t.is(await apply(ca, [namespace, service('web'), policy]), 200);
  const ingester = definition.create(
    definition.config.parse({
      ...redis.environment('xds-ingester'),
      XDS_ADDRESS: `https://127.0.0.1:${port}`,
      XDS_ROOT_CA: ca.bundlePath,
      ALT_XDS_HOSTNAME: 'istiod.istio-system.svc',
      AUTH_TOKEN: await ca.issuer.mint(accountSubject('istio-system', 'ztunnel')),
    }),
  );
  const running = await startActor(t, ingester, 'xds-ingester');
  const { bus } = openBus(t, redis.config('node-proxy.node-1'));
  const addresses = new TableCopy();
  const authorizations = new TableCopy();
  bus.reader('addresses', 'mesh', addresses);
  bus.reader('authorizations', 'mesh', authorizations);
  const web = 'demo/web.demo.svc.cluster.local';
  await until(() => addresses.rows.has(web) && authorizations.rows.has('demo/deny-all'), {
    what: 'the rows',
    timeoutMs: 20_000,
  });
  await until(() => running.context.readiness.pending().length === 0, { what: 'readiness' });

  await plane.stop();
  await redis.kill();
  await redis.start({ empty: true });
  await until(() => addresses.copies >= 2, { what: 'the new epoch', timeoutMs: 20_000 });
  t.true(addresses.rows.has(web), 'without the control plane');

  await startPlane(t, ca, port);
  t.is(await apply(ca, [service('api')]), 200);
  await until(() => addresses.rows.has('demo/api.demo.svc.cluster.local'), {
    what: 'the next service',
    timeoutMs: 30_000,
  });
  t.true(addresses.rows.has(web));
  const raw = await redis.client().hgetBuffer(`${redis.prefix}:{mesh}:state:addresses:data`, web);
  const decoded = decodeAddress((raw ?? Buffer.alloc(0)).subarray(8));
  t.is(decoded.kind, 'service', ADDRESS_TYPE);
});

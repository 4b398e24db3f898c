/** Tests what the control plane shows of its clients, and to whom. */
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { HttpServer } from '../../../lib/http/http-server.ts';
import { RouteTable } from '../../../lib/http/routes.ts';
import { ADDRESS_TYPE } from '../../../lib/xds/type-urls.ts';
import {
  conditions as conditionsKind,
  nacks as nacksKind,
} from '../../../services/cli/get/control-plane.ts';
import { loadKind } from '../../../services/cli/get/kinds.ts';
import { localMesh } from '../../../services/cli/local-mesh.ts';
import type { Mesh } from '../../../services/cli/mesh.ts';
import { adminSocket, meshPaths } from '../../../services/local-mesh/mesh-paths.ts';
import { keptLog } from '../../support/actor-context.ts';
import type { TestActor } from '../../support/actor-context.ts';
import { askRoute } from '../../support/ask-route.ts';
import { createControlPlaneKit } from '../../support/control-plane-kit.ts';
import { TEST_NODE_ID, openTestStream } from '../../support/delta-test-client.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { accountSubject } from '../../support/token-issuer.ts';
import { until } from '../../support/until.ts';

const BASE = `
apiVersion: v1
kind: Namespace
metadata: {name: demo}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo}
spec: {clusterIP: 10.96.1.1, ports: [{port: 80}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: only-client, namespace: demo}
spec: {rules: [{from: [{source: {serviceAccounts: [client]}}]}]}
`;
const WEB = 'demo/web.demo.svc.cluster.local';
/** An address of the documentation range stands for another machine. */
const ELSEWHERE = '192.0.2.1';

test('what clients are sent, and how far each is', async (t) => {
  const kit = await createControlPlaneKit(t);
  const { routes } = await kit.start();
  await kit.api.apply(BASE);
  const page = async (path: string, query = ''): Promise<unknown> => {
    const { status, text } = await askRoute(routes, `GET ${path}`, { query });
    t.is(status, 200, path);
    return JSON.parse(text) as unknown;
  };
  await until(async () => JSON.stringify(await page('/debug/ambientz')).includes('only-client'), {
    what: 'the objects to be served',
  });
  t.like(await page('/debug/ambientz'), {
    addresses: { workloads: [], services: [{ name: WEB, content: { name: 'web' } }] },
    policies: [{ name: 'demo/only-client', content: { action: 'ALLOW' } }],
  });
  const stream = openTestStream(t, await kit.target());
  stream.open(ADDRESS_TYPE);
  const first = await stream.response(ADDRESS_TYPE, 0);
  t.like(await page('/debug/syncz'), [
    { proxy: TEST_NODE_ID, types: { [ADDRESS_TYPE]: { status: 'STALE', nonce: first.nonce } } },
  ]);
  stream.ack(first);
  await until(async () => JSON.stringify(await page('/debug/syncz')).includes('"SYNCED"'), {
    what: 'the ACK',
  });
  t.like(await page('/debug/connections'), {
    totalClients: 1,
    clients: [{ proxy: TEST_NODE_ID }],
  });
  t.like(await page('/debug/config_dump', '?proxyID=node-1'), {
    clients: [{ node: TEST_NODE_ID, subscriptions: { [ADDRESS_TYPE]: { wildcard: true } } }],
    served: { policies: [{ name: 'demo/only-client' }] },
  });
  t.like(await page('/debug/config_dump', '?proxyID=other'), { clients: [] });
  t.is((await askRoute(routes, 'GET /debug/config_dump')).status, 400);
});

test('debug pages answer this machine, and accounts of the root namespace', async (t) => {
  const kit = await createControlPlaneKit(t);
  const { routes } = await kit.start();
  const { issuer } = kit.ca;
  const ask = async (token?: string): Promise<number> => {
    const options = token === undefined ? {} : { token };
    return (await askRoute(routes, 'GET /debug/syncz', { from: ELSEWHERE, ...options })).status;
  };
  t.is(await ask(), 401);
  t.is(await ask('nonsense'), 401);
  t.is(await ask(await issuer.mint(accountSubject('demo', 'web'))), 403);
  t.is(await ask(await issuer.mint(accountSubject('istio-system', 'istiod'))), 200);
  for (const from of ['127.0.0.1', '127.1.2.3', '::1', '::ffff:127.0.0.1']) {
    t.is((await askRoute(routes, 'GET /debug/syncz', { from })).status, 200, from);
  }
});

/** Serves the actor's admin pages where the command line looks for them. */
async function asMesh(t: ExecutionContext, actor: TestActor): Promise<Mesh> {
  const paths = meshPaths('pages', { WEFT_RUN_DIR: join(await makeScratch('pages'), 'run') });
  const table = new RouteTable();
  for (const [name, handler] of actor.routes) {
    const [method = '', path = ''] = name.split(' ');
    table.route(method, `/control-plane${path}`, handler);
  }
  const server = new HttpServer(table.handle, { name: 'admin', log: keptLog('admin').log });
  const socket = adminSocket(paths, 'control-plane', null);
  await mkdir(dirname(socket), { recursive: true });
  await server.listen({ kind: 'unix', path: socket });
  t.teardown(() => server.close());
  return localMesh({ paths, plan: { nodes: [] } as never });
}

test('weft get conditions lists what the control plane finds of its objects', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start();
  await kit.api.apply(
    BASE.replace('{name: web,', '{name: web, labels: {istio.io/use-waypoint: gone},'),
  );
  const mesh = await asMesh(t, actor);
  const lines = await until(
    async () => {
      const found = await conditionsKind.read(mesh);
      return found.lines.length > 1 ? found.lines : null;
    },
    { what: 'the conditions' },
  );
  t.like(
    lines.find(({ kind }) => kind === 'Service'),
    { namespace: 'demo', name: 'web', type: 'istio.io/WaypointBound', status: 'False' },
  );
  t.like(
    lines.find(({ kind }) => kind === 'AuthorizationPolicy'),
    { namespace: 'demo', name: 'only-client', type: 'ZtunnelAccepted', status: 'True' },
  );
});

test('weft get nacks lists what clients refused', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start();
  await kit.api.apply(BASE);
  const stream = openTestStream(t, await kit.target());
  stream.open(ADDRESS_TYPE);
  stream.nack(await stream.response(ADDRESS_TYPE, 0), `${WEB}: refused`);

  const mesh = await asMesh(t, actor);
  const lines = await until(
    async () => {
      const found = await nacksKind.read(mesh);
      return found.lines.length > 0 ? found.lines : null;
    },
    { what: 'the NACK' },
  );
  t.like(lines[0], { node: TEST_NODE_ID, type: ADDRESS_TYPE, reason: `${WEB}: refused` });
  const { header } = await loadKind('nacks');
  t.deepEqual(header, ['AT', 'NODE', 'TYPE', 'REASON']);
});

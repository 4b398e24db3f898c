import test from 'ava';
import { status } from '@grpc/grpc-js';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import { askRoute } from '../../support/ask-route.ts';
import { createControlPlaneKit } from '../../support/control-plane-kit.ts';
import {
  TEST_NODE_ID,
  namesOf,
  openTestStream,
  versionsOf,
} from '../../support/delta-test-client.ts';
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
spec: {clusterIP: 10.96.1.1, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: demo, labels: {app: web}, annotations: {ambient.istio.io/redirection: enabled}}
spec: {nodeName: node-1, serviceAccountName: web, containers: [{name: app}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: only-client, namespace: demo}
spec: {selector: {matchLabels: {app: web}}, rules: [{from: [{source: {serviceAccounts: [client]}}]}]}
`;
const WEB_POD = 'Kubernetes//Pod/demo/web-1';
const WEB_SERVICE = 'demo/web.demo.svc.cluster.local';

test('a client gets everything, then what changes, then what is gone', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  await kit.api.apply(BASE);
  await kit.api.run('demo', 'web-1', ['10.201.0.5', 'fd00:201:1::5']);
  await kit.api.object('Pod', 'web-1');
  const stream = openTestStream(t, await kit.target());
  await until(
    async () => {
      const probe = openTestStream(t, await kit.target());
      probe.open(ADDRESS_TYPE);
      const names = namesOf(await probe.response(ADDRESS_TYPE, 0));
      probe.close();
      return names.length === 2;
    },
    { what: 'pod and service to be served' },
  );

  stream.open(ADDRESS_TYPE);
  stream.open(AUTHORIZATION_TYPE);
  const first = await stream.response(ADDRESS_TYPE, 0);
  t.deepEqual(namesOf(first), [WEB_POD, WEB_SERVICE].sort());
  t.deepEqual(first.removedResources, []);
  const pod = first.resources.find(({ name }) => name === WEB_POD)?.resource?.value;
  const decoded = decodeAddress(pod ?? new Uint8Array());
  t.like(decoded.kind === 'workload' ? decoded.workload : null, {
    addresses: ['10.201.0.5', 'fd00:201:1::5'],
    tunnelProtocol: 'HBONE',
    serviceAccount: 'web',
    status: 'HEALTHY',
    services: { [WEB_SERVICE]: { 80: 8080 } },
    authorizationPolicies: ['demo/only-client'],
  });
  const policies = await stream.response(AUTHORIZATION_TYPE, 0);
  t.deepEqual(namesOf(policies), ['demo/only-client']);
  const policy = decodeAuthorization(policies.resources[0]?.resource?.value ?? new Uint8Array());
  t.deepEqual(policy.rules[0]?.clauses[0]?.matches[0]?.serviceAccounts, [
    { namespace: 'demo', serviceAccount: 'client' },
  ]);
  stream.ack(first);
  stream.ack(policies);

  await kit.api.run('demo', 'web-1', ['10.201.0.5', 'fd00:201:1::5'], false);
  const second = await stream.response(ADDRESS_TYPE, 1);
  t.deepEqual(namesOf(second), [WEB_POD], 'only what changed');
  stream.ack(second);

  await kit.api.manifests('delete', 'kind: Pod\nmetadata: {name: web-1, namespace: demo}');
  const third = await stream.response(ADDRESS_TYPE, 2);
  t.deepEqual(namesOf(third), []);
  t.deepEqual(third.removedResources, [WEB_POD]);
  stream.ack(third);

  await kit.api.manifests('delete', 'kind: Namespace\nmetadata: {name: demo}');
  const fourth = await stream.response(ADDRESS_TYPE, 3);
  t.deepEqual(fourth.removedResources, [WEB_SERVICE]);
  const gone = await stream.response(AUTHORIZATION_TYPE, 1);
  t.deepEqual(gone.removedResources, ['demo/only-client']);
});

test('a resume after a restart sends what differs, and nothing twice', async (t) => {
  const kit = await createControlPlaneKit(t);
  const before = await kit.start();
  await kit.api.apply(BASE);
  await kit.api.run('demo', 'web-1', ['10.201.0.5']);
  await before.stop();

  const restarted = await kit.start();
  const first = openTestStream(t, await kit.target());
  first.open(ADDRESS_TYPE);
  first.open(AUTHORIZATION_TYPE);
  const addresses = await first.response(ADDRESS_TYPE, 0);
  const policies = await first.response(AUTHORIZATION_TYPE, 0);
  t.is(addresses.resources.length, 2);
  first.close();
  await restarted.stop();

  await kit.start();
  const again = openTestStream(t, await kit.target());
  again.open(ADDRESS_TYPE, {
    initialResourceVersions: { ...versionsOf(addresses), 'Kubernetes//Pod/demo/ghost': 'x' },
  });
  again.open(AUTHORIZATION_TYPE, { initialResourceVersions: versionsOf(policies) });
  const resumed = await again.response(ADDRESS_TYPE, 0);
  t.deepEqual(namesOf(resumed), []);
  t.deepEqual(resumed.removedResources, ['Kubernetes//Pod/demo/ghost']);
  const resumedPolicies = await again.response(AUTHORIZATION_TYPE, 0);
  t.deepEqual(namesOf(resumedPolicies), []);

  const stale = openTestStream(t, await kit.target());
  stale.open(ADDRESS_TYPE, {
    initialResourceVersions: { ...versionsOf(addresses), [WEB_POD]: 'older' },
  });
  t.deepEqual(namesOf(await stale.response(ADDRESS_TYPE, 0)), [WEB_POD]);
});

test('a NACK is logged with its reason, counted, and nothing is sent again', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start();
  await kit.api.apply(BASE);
  const stream = openTestStream(t, await kit.target());
  stream.open(ADDRESS_TYPE);
  const first = await stream.response(ADDRESS_TYPE, 0);
  stream.nack(first, `${WEB_SERVICE}: service.ports[0]: refused`);
  const line = await until(() => actor.lines.find(({ message }) => message === 'xds.nacked'), {
    what: 'the NACK in the log',
  });
  t.is(line['reason'], `${WEB_SERVICE}: service.ports[0]: refused`);
  t.is(line['node'], TEST_NODE_ID);
  t.regex(await actor.metrics(), /pilot_total_xds_rejects\{type="WDS"\} 1/);
  // The next change is sent as usual, and nothing else.
  await kit.api.apply(
    'apiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: demo}\nspec: {ports: [{port: 80}]}',
  );
  const second = await stream.response(ADDRESS_TYPE, 1);
  t.deepEqual(namesOf(second), ['demo/api.demo.svc.cluster.local']);
});

test('a response that is not acknowledged holds back the next; changes gather meanwhile', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start();
  await kit.api.apply(BASE);
  const stream = openTestStream(t, await kit.target());
  stream.open(ADDRESS_TYPE);
  const first = await stream.response(ADDRESS_TYPE, 0);
  for (const name of ['one', 'two', 'three']) {
    await kit.api.apply(
      `apiVersion: v1\nkind: Service\nmetadata: {name: ${name}, namespace: demo}\nspec: {ports: [{port: 80}]}`,
    );
  }
  await until(async () => (await owedOf(actor.routes)) === 3, { what: 'three names to be owed' });
  stream.send({ typeUrl: ADDRESS_TYPE, responseNonce: 'outdated' });
  t.is(stream.responses.length, 1);
  stream.ack(first);
  const second = await stream.response(ADDRESS_TYPE, 1);
  t.deepEqual(
    namesOf(second),
    ['one', 'three', 'two'].map((name) => `demo/${name}.demo.svc.cluster.local`),
  );
  t.regex(await actor.metrics(), /pilot_xds_expired_nonce\{type="WDS"\} 1/);
});

test('many changes become one response', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start({ PILOT_DEBOUNCE_AFTER: '10s', PILOT_DEBOUNCE_MAX: '60s' });
  await kit.api.apply('apiVersion: v1\nkind: Namespace\nmetadata: {name: demo}');
  const stream = openTestStream(t, await kit.target());
  stream.open(ADDRESS_TYPE);
  stream.ack(await stream.response(ADDRESS_TYPE, 0));
  await Promise.all(
    Array.from({ length: 40 }, (_, index) =>
      kit.api.apply(
        `apiVersion: v1\nkind: Service\nmetadata: {name: s-${index}, namespace: demo}\nspec: {ports: [{port: 80}]}`,
      ),
    ),
  );
  const response = await stream.response(ADDRESS_TYPE, 1);
  t.is(response.resources.length, 40);
});

test('a client on demand gets what it asks for, by any name, and its changes', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  await kit.api.apply(BASE);
  const stream = openTestStream(t, await kit.target());
  stream.open(ADDRESS_TYPE, {
    resourceNamesSubscribe: ['*'],
    resourceNamesUnsubscribe: ['*'],
  });
  const nothing = await stream.response(ADDRESS_TYPE, 0);
  t.deepEqual(namesOf(nothing), []);
  stream.ack(nothing);

  stream.send({ typeUrl: ADDRESS_TYPE, resourceNamesSubscribe: ['/10.201.0.5'] });
  const unknown = await stream.response(ADDRESS_TYPE, 1);
  t.deepEqual(unknown.removedResources, ['/10.201.0.5']);
  stream.ack(unknown);

  await kit.api.run('demo', 'web-1', ['10.201.0.5']);
  const known = await stream.response(ADDRESS_TYPE, 2);
  t.deepEqual(namesOf(known), [WEB_POD]);
  t.deepEqual(known.resources[0]?.aliases, ['/10.201.0.5']);
  stream.ack(known);

  stream.send({ typeUrl: ADDRESS_TYPE, resourceNamesSubscribe: ['/10.96.1.1'] });
  const service = await stream.response(ADDRESS_TYPE, 3);
  t.true(namesOf(service).includes(WEB_SERVICE));
});

test('a client on demand always gets the workloads of its node', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  await kit.api.apply(BASE);
  await kit.api.run('demo', 'web-1', ['10.201.0.5']);
  const stream = openTestStream(t, await kit.target());
  stream.open(
    ADDRESS_TYPE,
    { resourceNamesSubscribe: ['*'], resourceNamesUnsubscribe: ['*'] },
    { NODE_NAME: 'node-1' },
  );
  const first = await stream.response(ADDRESS_TYPE, 0);
  if (namesOf(first).length === 0) {
    stream.ack(first);
    t.deepEqual(namesOf(await stream.response(ADDRESS_TYPE, 1)), [WEB_POD]);
  } else {
    t.deepEqual(namesOf(first), [WEB_POD]);
  }
});

test('who may open a stream', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start({
    WEFT_CONTROL_PLANE_XDS_ACCOUNTS: 'istio-system/ztunnel,demo/gateway',
  });
  const { issuer } = kit.ca;
  const plain = await issuer.mint(accountSubject('demo', 'web'));
  const foreign = await issuer.mint(accountSubject('demo', 'gateway'));
  const expired = await issuer.mint(accountSubject('istio-system', 'ztunnel'), {
    issuedAtMs: Date.now() - 7_200_000,
  });
  const cases: readonly (readonly [string, string | null, number, RegExp])[] = [
    ['not a token', 'nonsense', status.UNAUTHENTICATED, /token is refused/],
    ['an expired token', expired, status.UNAUTHENTICATED, /it expired at/],
    ['no token', null, status.UNAUTHENTICATED, /a bearer token is required/],
    [
      'a token of a plain account',
      plain,
      status.PERMISSION_DENIED,
      /^demo\/web may not read the mesh/,
    ],
    [
      'a token of another namespace',
      foreign,
      status.PERMISSION_DENIED,
      /demo\/gateway may not speak for a node of namespace istio-system/,
    ],
  ];
  for (const [what, token, code, reason] of cases) {
    const stream = openTestStream(t, await kit.target(token));
    stream.open(ADDRESS_TYPE);
    const end = await until(stream.ended, { what: `the end of the stream with ${what}` });
    t.is(end === 'end' ? -1 : end.code, code, what);
    t.regex(end === 'end' ? '' : end.details, reason, what);
  }
  const metrics = await actor.metrics();
  t.regex(metrics, /weft_xds_streams_refused_total\{reason="identity"\} 4/);
  t.regex(metrics, /weft_xds_streams_refused_total\{reason="account"\} 1/);
  const refusals = actor.lines.filter(({ message }) => message === 'xds.stream-refused');
  t.is(refusals.length, cases.length);
  t.true(refusals.some(({ error }) => String(error).startsWith('demo/web may not read the mesh')));
});

test('what a stream must not say', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start();
  const cases: readonly (readonly [
    string,
    (stream: ReturnType<typeof openTestStream>) => void,
    RegExp,
  ])[] = [
    ['bytes', (stream) => stream.sendRaw(Buffer.of(0xff, 0xff)), /not a DeltaDiscoveryRequest/],
    ['no node', (stream) => stream.send({ typeUrl: ADDRESS_TYPE }), /must carry its node/],
    [
      'a bad node id',
      (stream) => stream.send({ typeUrl: ADDRESS_TYPE, node: { id: 'ztunnel~x' } }),
      /node\.id must be role~ip~pod\.namespace/,
    ],
    ['no type', (stream) => stream.open(''), /must name its type_url/],
  ];
  for (const [what, say, reason] of cases) {
    const stream = openTestStream(t, await kit.target());
    say(stream);
    const end = await until(stream.ended, { what: `the end of the stream with ${what}` });
    t.is(end === 'end' ? -1 : end.code, status.INVALID_ARGUMENT, what);
    t.regex(end === 'end' ? '' : end.details, reason, what);
  }
  const alive = openTestStream(t, await kit.target());
  alive.open(ADDRESS_TYPE);
  t.deepEqual(namesOf(await alive.response(ADDRESS_TYPE, 0)), []);
  t.regex(await actor.metrics(), /weft_xds_streams_refused_total\{reason="protocol"\} 4/);
});

test('the state of streams is shown', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start();
  const stream = openTestStream(t, await kit.target());
  stream.open(ADDRESS_TYPE);
  stream.ack(await stream.response(ADDRESS_TYPE, 0));
  await until(async () => (await viewOf(actor.routes, '/streams')).includes('"acks":1'), {
    what: 'the ACK',
  });
  t.regex(await viewOf(actor.routes, '/streams'), /"identity":"istio-system\/ztunnel"/);
});

type Routes = Awaited<
  ReturnType<Awaited<ReturnType<typeof createControlPlaneKit>>['start']>
>['routes'];

/** Returns the text of an admin route's answer. */
async function viewOf(routes: Routes, path: string): Promise<string> {
  return (await askRoute(routes, `GET ${path}`)).text;
}

async function owedOf(routes: Routes): Promise<number> {
  const { streams } = JSON.parse(await viewOf(routes, '/streams')) as {
    streams: { subscriptions: Record<string, { owed: number }> }[];
  };
  return streams[0]?.subscriptions[ADDRESS_TYPE]?.owed ?? 0;
}

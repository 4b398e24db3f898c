import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { request as httpRequest } from '../../../lib/http/node-http.ts';
import { ApiClient, createControlPlaneKit } from '../../support/control-plane-kit.ts';
import { until } from '../../support/until.ts';

const POD = `
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: demo, labels: {app: web}}
spec: {nodeName: node-1, serviceAccountName: web, containers: [{name: app, image: web}]}
`;
const DEMO = 'apiVersion: v1\nkind: Namespace\nmetadata: {name: demo}\n';
const service = (name: string, spec: string): string =>
  `apiVersion: v1\nkind: Service\nmetadata: {name: ${name}, namespace: demo}\nspec: {ports: [{port: 80}], ${spec}}\n`;

test('the socket of the pods tells the pods, and takes no orders', async (t) => {
  const kit = await createControlPlaneKit(t);
  const path = join(kit.ca.dir, 'pods', 'pods.sock');
  await kit.start({ WEFT_PODS_SOCKET: path });
  await kit.api.apply(`${DEMO}---\n${POD}`);
  const pods = new ApiClient(path);
  await new Promise<void>((resolve, reject) => {
    const call = httpRequest({ socketPath: path, path: '/watch?kind=Pod' }, (response) => {
      let text = '';
      // The client leaves before the end of the response.
      response.on('error', () => undefined);
      response.on('data', (chunk: Buffer) => {
        text += chunk.toString();
        if (!text.includes('"name":"web-1"')) return;
        resolve();
        call.destroy();
      });
    });
    call.on('error', reject).end();
  });
  const documents = [{ source: 'x', index: 0, object: {} }];
  for (const [method, where, body] of [
    ['POST', '/apply', { documents }],
    ['POST', '/delete', { documents }],
    ['PUT', '/pods/demo/web-1/status', { podIPs: ['10.0.0.1'], ready: true }],
    ['GET', '/objects?kind=Pod', undefined],
    ['GET', '/watch?kind=AuthorizationPolicy', undefined],
  ] as const) {
    const { status, body: told } = await pods.send(method, where, body);
    t.is(status, 403, `${method} ${where}`);
    t.regex(JSON.stringify(told), /role pods/);
  }
  t.is((await kit.api.objects('Pod')).length, 1);
});

test('objects are created, configured, left alone, and deleted', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  // The namespace may come after the objects in it.
  const created = await kit.api.manifests('apply', `${POD}---\n${DEMO}`);
  t.deepEqual(created.body, {
    applied: [
      { kind: 'Pod', namespace: 'demo', name: 'web-1', result: 'created' },
      { kind: 'Namespace', namespace: '', name: 'demo', result: 'created' },
    ],
  });
  const again = await kit.api.manifests('apply', POD);
  t.like(again.body, { applied: [{ result: 'unchanged' }] });
  const relabelled = await kit.api.manifests('apply', POD.replace('app: web', 'app: other'));
  t.like(relabelled.body, { applied: [{ result: 'configured' }] });
  const gone = await kit.api.manifests('delete', `${POD}---\nkind: Pod\nmetadata: {name: ghost}`);
  t.deepEqual(gone.body, {
    deleted: [{ kind: 'Pod', namespace: 'demo', name: 'web-1' }],
    missing: [{ kind: 'Pod', namespace: 'default', name: 'ghost' }],
  });
  t.deepEqual(await kit.api.objects('Pod'), []);
});

test('a pod keeps its uid while it lives, and a namesake gets another', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  await kit.api.apply(`${DEMO}---\n${POD}`);
  const first = (await kit.api.object('Pod', 'web-1')).metadata.uid;
  await kit.api.apply(POD.replace('app: web', 'app: other'));
  t.is((await kit.api.object('Pod', 'web-1')).metadata.uid, first);
  await kit.api.manifests('delete', POD);
  await kit.api.apply(POD);
  t.not((await kit.api.object('Pod', 'web-1')).metadata.uid, first);
});

test('a report about a pod counts for that very pod', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  await kit.api.apply(`${DEMO}---\n${POD}`);
  const report = { podIPs: ['10.201.0.5'], phase: 'Running', ready: true, netns: '/run/netns/x' };
  const path = '/pods/demo/web-1/status';
  const uid = (await kit.api.object('Pod', 'web-1')).metadata.uid;
  t.is((await kit.api.send('PUT', path, { ...report, uid })).status, 200);
  const { status } = await kit.api.object('Pod', 'web-1');
  t.like(status, { phase: 'Running', podIP: '10.201.0.5', netns: '/run/netns/x' });
  t.is((await kit.api.send('PUT', path, { ...report, uid: 'other' })).status, 409);
  t.is((await kit.api.send('PUT', '/pods/demo/ghost/status', { ...report, uid })).status, 404);
  const bad = await kit.api.send('PUT', path, { ...report, uid, podIPs: ['10.0.0.300'] });
  t.is(bad.status, 422);
  t.like(bad.body, { errors: [{ path: 'podIPs.0', reason: 'is not an IP address' }] });
  t.like((await kit.api.object('Pod', 'web-1')).status, { podIP: '10.201.0.5' });
});

test('services get addresses of both families that stay', async (t) => {
  const kit = await createControlPlaneKit(t);
  const running = await kit.start();
  await kit.api.apply(DEMO + '---\n' + service('web', 'selector: {app: web}'));
  const { clusterIP, clusterIPs } = (await kit.api.object('Service', 'web')).spec;
  t.regex(String(clusterIP), /^10\.96\./);
  t.regex(String((clusterIPs as string[])[1]), /^fd00:96::/);
  await kit.api.apply(service('web', 'selector: {app: other}'));
  t.deepEqual((await kit.api.object('Service', 'web')).spec['clusterIPs'], clusterIPs);
  await running.stop();
  await kit.start();
  t.deepEqual((await kit.api.object('Service', 'web')).spec['clusterIPs'], clusterIPs);
  await kit.api.apply(service('fixed', 'clusterIP: 10.96.7.7'));
  t.is((await kit.api.object('Service', 'fixed')).spec['clusterIP'], '10.96.7.7');
  await kit.api.apply(service('headless', 'clusterIP: None'));
  t.deepEqual((await kit.api.object('Service', 'headless')).spec['clusterIPs'], ['None']);
});

interface Refused {
  readonly errors: readonly {
    readonly index: number;
    readonly path: string;
    readonly reason: string;
  }[];
}

/** Refused manifests, with place and reason. */
const refused: readonly (readonly [what: string, text: string, path: string, reason: RegExp])[] = [
  ['no object', '- 1', '', /must be an object/],
  ['no kind', 'apiVersion: v1', 'kind', /is required/],
  ['an unknown kind', 'kind: Deployment', 'kind', /unknown kind "Deployment"/],
  [
    'a wrong version',
    'apiVersion: v2\nkind: Namespace\nmetadata: {name: x}',
    'apiVersion',
    /must be "v1"/,
  ],
  ['no metadata', 'apiVersion: v1\nkind: Namespace', 'metadata', /is required/],
  ['no name', 'apiVersion: v1\nkind: Namespace\nmetadata: {}', 'metadata.name', /is required/],
  [
    'a bad name',
    'apiVersion: v1\nkind: Namespace\nmetadata: {name: A_b}',
    'metadata.name',
    /lower-case/,
  ],
  [
    'a label that is no text',
    'apiVersion: v1\nkind: Namespace\nmetadata: {name: x, labels: {a: 1}}',
    'metadata.labels.a',
    /must be text/,
  ],
  [
    'an unknown field',
    'apiVersion: v1\nkind: Namespace\nmetadata: {name: x, lables: {}}',
    'metadata.lables',
    /unknown field/,
  ],
  [
    'a missing namespace',
    POD.replace('namespace: demo', 'namespace: nowhere'),
    'metadata.namespace',
    /there is no namespace nowhere/,
  ],
  [
    'a pod without containers',
    POD.replace('[{name: app, image: web}]', '[]'),
    'spec.containers',
    /at least one/,
  ],
  [
    'a pod with a misspelt field',
    POD.replace('nodeName', 'nodName'),
    'spec.nodName',
    /unknown field/,
  ],
  ['a service with a misspelt field', service('x', 'selectr: {}'), 'spec.selectr', /unknown field/],
  [
    'a service with a bad port',
    service('x', '').replace('port: 80', 'port: 80000'),
    'spec.ports[0].port',
    /1 to 65535/,
  ],
  [
    'a service outside of its range',
    service('x', 'clusterIP: 10.0.0.1'),
    'spec.clusterIP',
    /outside of the range 10\.96\.0\.0\/16/,
  ],
  [
    'a service with a taken address',
    service('x', 'clusterIP: 10.96.7.7'),
    'spec.clusterIP',
    /10\.96\.7\.7 is taken by Service\/demo\/owner/,
  ],
  [
    'an entry without hosts',
    'apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x}\nspec: {hosts: []}',
    'spec.hosts',
    /at least one host/,
  ],
  [
    'an entry exported by name',
    'apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x}\nspec: {hosts: [a.b], exportTo: [demo]}',
    'spec.exportTo[0]',
    /must be "\*"/,
  ],
  [
    'a workload entry without address',
    'apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: x}\nspec: {}',
    'spec.address',
    /is required/,
  ],
  ['a policy with an unknown action', policy('action: PERMIT'), 'spec.action', /must be one of/],
  [
    'a policy with a misspelt condition',
    policy('rules: [{from: [{source: {principal: [a]}}]}]'),
    'spec.rules[0].from[0].source.principal',
    /unknown field/,
  ],
  [
    'a policy with a bad port',
    policy('rules: [{to: [{operation: {ports: ["65536"]}}]}]'),
    'spec.rules[0].to[0].operation.ports[0]',
    /not a port/,
  ],
  [
    'a policy with a bad range',
    policy('rules: [{from: [{source: {ipBlocks: [10.0.0.0/40]}}]}]'),
    'spec.rules[0].from[0].source.ipBlocks[0]',
    /not an IP address or CIDR range/,
  ],
  [
    'a policy with an empty list',
    policy('rules: [{from: []}]'),
    'spec.rules[0].from',
    /must not be empty/,
  ],
  [
    'a policy with an unknown key',
    policy('rules: [{when: [{key: source.ipp, values: [a]}]}]'),
    'spec.rules[0].when[0].key',
    /unknown key/,
  ],
  [
    'a policy with a key that every object of the language has',
    policy('rules: [{when: [{key: constructor, values: [a]}]}]'),
    'spec.rules[0].when[0].key',
    /unknown key "constructor"/,
  ],
  [
    'a policy with a principal that never matches',
    policy('rules: [{from: [{source: {principals: ["spiffe://a/ns/b/sa/c"]}}]}]'),
    'spec.rules[0].from[0].source.principals[0]',
    /without "spiffe:\/\/"/,
  ],
  [
    'port modes without selector',
    'apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: x}\nspec: {portLevelMtls: {"80": {mode: STRICT}}}',
    'spec.portLevelMtls',
    /needs a selector/,
  ],
  [
    'a List with a bad item',
    'kind: List\nitems: [{apiVersion: v1, kind: Namespace, metadata: {name: ok}}, {kind: X}]',
    'items[1].kind',
    /unknown kind/,
  ],
];

function policy(spec: string): string {
  return `apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x, namespace: demo}\nspec: {${spec}}\n`;
}

test('what is refused is refused whole, with its place and reason', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start();
  await kit.api.apply(`${DEMO}---\n${service('owner', 'clusterIP: 10.96.7.7')}`);
  const before = await everything(kit.api);
  const good = 'apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: good, namespace: demo}\n';
  for (const [what, text, path, reason] of refused) {
    const answer = await kit.api.manifests('apply', `${good}---\n${text}`);
    t.is(answer.status, 422, what);
    const errors = (answer.body as Refused).errors;
    const found = errors.find((error) => error.index === 1 && error.path === path);
    t.truthy(found, `${what}: ${JSON.stringify(errors)}`);
    t.regex(found?.reason ?? '', reason, what);
    t.deepEqual(await everything(kit.api), before, `${what}: the state stays`);
  }
  t.regex(
    await actor.metrics(),
    /api_requests_total\{operation="POST \/apply",outcome="refused"\}/,
  );
});

async function everything(api: { objects(kind: string): Promise<unknown> }): Promise<unknown> {
  return Promise.all(
    ['Namespace', 'Service', 'ServiceAccount', 'Pod'].map((kind) => api.objects(kind)),
  );
}

test('every problem of a batch is told at once', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  const answer = await kit.api.manifests('apply', 'kind: A\n---\nkind: B\n---\nkind: C');
  t.deepEqual(
    (answer.body as Refused).errors.map(({ index }) => index),
    [0, 1, 2],
  );
  const twice = await kit.api.manifests('apply', `${DEMO}---\n${DEMO}`);
  t.like(twice.body, {
    errors: [{ index: 1, reason: 'the same object is in test.yaml, document 0' }],
  });
});

test('a pod cannot be changed in place, and the field is named', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  await kit.api.apply(`${DEMO}---\n${POD}`);
  const answer = await kit.api.manifests('apply', POD.replace('node-1', 'node-2'));
  t.like(answer.body, {
    errors: [
      { path: 'spec.nodeName', reason: 'a pod cannot be changed while it exists, delete it first' },
    ],
  });
});

const UNBOUND = POD.replace('nodeName: node-1, ', '');

test('a manifest may bind a pod to a node once, and one without a node leaves the binding alone', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  const errors = [
    { path: 'spec.nodeName', reason: 'a pod cannot be changed while it exists, delete it first' },
  ];
  await kit.api.apply(`${DEMO}---\n${UNBOUND}`);
  const changed = await kit.api.manifests('apply', POD.replace('image: web', 'image: other'));
  t.like(changed.body, { errors: [{ path: 'spec.containers[0].image' }] });
  t.is((await kit.api.object('Pod', 'web-1')).spec['nodeName'], undefined);
  t.like((await kit.api.manifests('apply', POD)).body, { applied: [{ result: 'configured' }] });
  const { metadata, spec } = await kit.api.object('Pod', 'web-1');
  t.is(spec['nodeName'], 'node-1');
  t.is(metadata.generation, 2);
  t.like((await kit.api.manifests('apply', UNBOUND)).body, { applied: [{ result: 'unchanged' }] });
  const moved = await kit.api.manifests('apply', POD.replace('node-1', 'node-2'));
  t.like(moved.body, { errors });
  t.is((await kit.api.object('Pod', 'web-1')).spec['nodeName'], 'node-1');
});

test('the scheduler binds a pod to a node once, and that very pod', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  await kit.api.apply(`${DEMO}---\n${UNBOUND}`);
  const path = '/pods/demo/web-1/binding';
  const { uid } = (await kit.api.object('Pod', 'web-1')).metadata;
  const put = (body: unknown, at = path): Promise<{ status: number; body: unknown }> =>
    kit.api.send('PUT', at, body);
  t.is((await put({ uid: 'other', nodeName: 'node-2' })).status, 409);
  t.is((await put({ uid, nodeName: 'node-2' }, '/pods/demo/ghost/binding')).status, 404);
  t.like((await put({ uid, nodeName: 'Node_2' })).body, {
    errors: [{ source: 'binding of demo/web-1', path: 'nodeName' }],
  });
  t.like(await put({ uid, nodeName: 'node-2' }), { status: 200, body: { result: 'changed' } });
  t.like(await put({ uid, nodeName: 'node-2' }), { status: 200, body: { result: 'unchanged' } });
  const again = await put({ uid, nodeName: 'node-1' });
  t.is(again.status, 409);
  t.regex(JSON.stringify(again.body), /pod demo\/web-1 is bound to node node-2/);
  const bound = await kit.api.object('Pod', 'web-1');
  t.is(bound.spec['nodeName'], 'node-2');
  t.is(bound.metadata.generation, 2);
});

test('a namespace takes along what is in it; two namespaces must stay', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  await kit.api.apply(`${DEMO}---\n${POD}`);
  const answer = await kit.api.manifests('delete', `${DEMO}---\n${POD}`);
  t.like(answer.body, { missing: [] });
  t.deepEqual(await kit.api.objects('Pod'), []);
  const root = await kit.api.manifests('delete', 'kind: Namespace\nmetadata: {name: istio-system}');
  t.is(root.status, 422);
});

test('requests that are none', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  t.is((await kit.api.send('POST', '/apply', '{')).status, 400);
  t.is((await kit.api.send('POST', '/apply', { document: [] })).status, 400);
  t.is((await kit.api.send('GET', '/objects?kind=Secret')).status, 400);
  t.is((await kit.api.send('GET', '/watch?kind=')).status, 400);
  t.is((await kit.api.send('GET', '/nothing')).status, 404);
  t.is((await kit.api.send('GET', '//')).status, 400);
  t.is((await kit.api.send('GET', '/objects?kind=Pod')).status, 200);
});

test('a watcher is told what there is and what changes', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  await kit.api.apply(DEMO);
  const lines = await watchLines(t, kit.api.socketPath, 'Pod');
  await until(() => lines.length === 2, { what: 'SYNC' });
  t.deepEqual(lines, [{ type: 'LIST', version: 2 }, { type: 'SYNC' }]);
  await kit.api.apply(POD);
  await kit.api.run('demo', 'web-1', ['10.201.0.5']);
  await kit.api.manifests('delete', POD);
  await until(() => lines.length === 5, { what: 'three changes' });
  t.deepEqual(
    lines.slice(2).map((line) => line['type']),
    ['ADDED', 'MODIFIED', 'DELETED'],
  );
});

async function watchLines(
  t: ExecutionContext,
  socketPath: string,
  kind: string,
): Promise<Record<string, unknown>[]> {
  const lines: Record<string, unknown>[] = [];
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    httpRequest({ socketPath, path: `/watch?kind=${kind}` }, resolve)
      .on('error', reject)
      .end();
  });
  t.teardown(() => response.destroy());
  // The end of the stream, by the server or the test, is no failure.
  response.on('error', () => undefined);
  createInterface({ input: response }).on('line', (line) =>
    lines.push(JSON.parse(line) as Record<string, unknown>),
  );
  return lines;
}

test('a policy that layer 4 cannot enforce as written says so in its status', async (t) => {
  const kit = await createControlPlaneKit(t);
  await kit.start();
  await kit.api.apply(
    `${DEMO}---\n${policy('action: DENY, rules: [{to: [{operation: {paths: ["/a"], ports: ["80"]}}]}]')}`,
  );
  const { status } = await kit.api.object('AuthorizationPolicy', 'x');
  t.like(status, {
    conditions: [{ type: 'ZtunnelAccepted', status: 'False', reason: 'UnsupportedValue' }],
  });
});

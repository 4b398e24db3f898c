import { once } from 'node:events';
import type { ExecutionContext } from 'ava';
import { compileProgram } from '../../lib/policy/compile.ts';
import { PolicyStore } from '../../lib/policy/policy-store.ts';
import { decodeAuthorization, encodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import { configDumpSchema } from '../support/config-dump-schema.ts';
import { authorizationFixture, matchFixture } from '../support/model-fixtures.ts';
import { ProxyMesh, exchange } from '../support/proxy-kit.ts';
import type { ProxyNode } from '../support/proxy-kit.ts';
import { until } from '../support/until.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { closed } from '../support/tcp-talk.ts';

async function twoPods(t: ExecutionContext, environment: Record<string, string> = {}) {
  const mesh = await ProxyMesh.start(t, { client: 'node-1', api: 'node-2' }, environment);
  const client = await mesh.addPod('client', 'node-1');
  const api = await mesh.addPod('api', 'node-2');
  await api.serve(8080, (socket) => socket.pipe(socket));
  await mesh.startProxies();
  return { mesh, client, api };
}

const STARTING: ReadonlySet<unknown> = new Set(['state.ready', 'zds.connected']);

/** Fetches a URL in the node's namespace with curl. */
function curl(node: ProxyNode, ...args: string[]): Promise<string> {
  return node.netns.exec('curl', '-s', '--max-time', '60', ...args);
}

const deny = authorizationFixture({
  name: 'deny-client',
  action: 'DENY',
  rules: [
    {
      clauses: [
        {
          matches: [
            matchFixture({
              principals: [{ kind: 'exact', value: 'cluster.local/ns/demo/sa/client' }],
            }),
          ],
        },
      ],
    },
  ],
});

// spec: inpod.md §1, spec: inpod.md §8
test('pods of two nodes talk over HBONE, and every view shows it', async (t) => {
  const { mesh, client, api } = await twoPods(t);
  const [one, two] = [mesh.nodes['node-1'], mesh.nodes['node-2']];
  // The proxy requests no pod before the mesh state is complete.
  const steps = one.lines.map((line) => line['message']).filter((text) => STARTING.has(text));
  t.deepEqual(steps, ['state.ready', 'zds.connected']);
  const socket = await client.connect(api.ip, 8080);
  t.is(await exchange(socket, 'hello'), 'hello');
  const identities = {
    sourceIdentity: 'spiffe://cluster.local/ns/demo/sa/client',
    destinationIdentity: 'spiffe://cluster.local/ns/demo/sa/api',
  };
  t.like(await one.connections(), [{ direction: 'outbound', protocol: 'HBONE', ...identities }]);
  t.like(await two.connections(), [{ direction: 'inbound', protocol: 'HBONE', ...identities }]);

  const dump = JSON.parse(await curl(two, 'http://127.0.0.1:15000/config_dump')) as Record<
    string,
    unknown
  >;
  t.is(configDumpSchema.safeParse(dump).error?.message, undefined);
  t.like(dump, {
    workloads: [
      { uid: 'Kubernetes//Pod/demo/api', workloadIps: [api.ip], protocol: 'HBONE' },
      { uid: 'Kubernetes//Pod/demo/client', node: 'node-1' },
    ],
    certificates: [{ identity: identities.destinationIdentity, state: 'Available' }],
    workloadState: {
      'uid-api': {
        state: 'Up',
        info: { name: 'api', namespace: 'demo', serviceAccount: 'api' },
        connections: { inbound: [{ protocol: 'HBONE', actualDst: `${api.ip}:8080` }] },
      },
    },
    config: { podDrainMs: 5_000 },
    version: { version: '0.1.0' },
  });
  t.regex(await curl(two, 'http://[::1]:15000/'), /config_dump/);

  socket.end();
  for (const node of [one, two]) {
    await until(async () => (await node.connections()).length === 0, { what: 'the end' });
  }
  for (const [node, reporter] of [
    [one, 'source'],
    [two, 'destination'],
  ] as const) {
    const stats = await curl(node, 'http://127.0.0.1:15020/stats/prometheus');
    const line = stats
      .split('\n')
      .find((text) => text.startsWith(`istio_tcp_connections_closed_total{reporter="${reporter}"`));
    t.regex(line ?? '', /connection_security_policy="mutual_tls".*\} 1$/, reporter);
    t.regex(stats, /^workload_manager_active_proxy_count 1$/m);
    t.regex(stats, /^istio_build\{component="ztunnel",tag="unknown"\} 1$/m);
    t.regex(stats, /# EOF\n$/);
  }
  t.is(await curl(one, 'http://127.0.0.1:15021/healthz/ready'), 'ready\n');
  const headers = await curl(
    one,
    '-D-',
    '-o/dev/null',
    '-HAccept: application/openmetrics-text',
    '-HAccept-Encoding: gzip',
    'http://[::1]:15020/metrics',
  );
  t.regex(headers, /content-type: application\/openmetrics-text;charset=utf-8;version=1.0.0/i);
  t.regex(headers, /content-encoding: gzip/i);
});

test('a DENY cuts the live connection, whether the evaluator compiles it or nobody does', async (t) => {
  const { mesh, client, api } = await twoPods(t);
  const first = await client.connect(api.ip, 8080);
  t.is(await exchange(first, 'one'), 'one');
  await mesh.applyPolicy(deny);
  await closed(first);
  const refused = await client.connect(api.ip, 8080);
  t.is(await exchange(refused, 'two'), null);
  const compiledHere = /weft_policy_programs\{by="node-proxy"\} [1-9]/;
  // The state thread reports its counts at intervals.
  await until(
    async () => compiledHere.test((await mesh.nodes['node-2'].get('/node-proxy/stats')).body),
    { what: 'the program to be counted' },
  );

  await mesh.tables.authorizations.apply([{ key: 'demo/deny-client', value: null }]);
  const again = await until(
    async () => {
      const socket = await client.connect(api.ip, 8080);
      if ((await exchange(socket, 'three')) === 'three') return socket;
      socket.destroy();
      return null;
    },
    { what: 'the policy to be gone' },
  );
  const evaluated = { ...deny, name: 'deny-again' };
  const store = new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
  store.apply('demo/deny-again', encodeAuthorization(evaluated));
  const { setId, policies } = store.setFor({ namespace: 'demo', authorizationPolicies: [] });
  const program = compileProgram(setId, policies);
  await mesh.tables.programs.apply([{ key: setId, value: Buffer.from(JSON.stringify(program)) }]);
  await mesh.applyPolicy(evaluated);
  await closed(again);
  t.regex(
    (await mesh.nodes['node-2'].get('/node-proxy/stats')).body,
    /weft_policy_programs\{by="evaluator"\} /,
  );
  const named = (): boolean =>
    mesh.nodes['node-2'].lines.some((line) => JSON.stringify(line).includes('demo/deny-again'));
  await until(named, { what: 'the log to name the policy' });
});

test('with Redis killed, connections go on and new ones work', async (t) => {
  const { mesh, client, api } = await twoPods(t);
  const before = await client.connect(api.ip, 8080);
  t.is(await exchange(before, 'before'), 'before');
  await mesh.redis.kill();
  await until(() => mesh.nodes['node-2'].logged('bus.connection').length >= 2, {
    what: 'the loss to be noticed',
  });
  t.is(await exchange(before, 'still'), 'still');
  const after = await client.connect(api.ip, 8080);
  t.is(await exchange(after, 'after'), 'after');
  t.is((await mesh.nodes['node-2'].get('/healthz/ready')).status, 200);
  await mesh.redis.start();
  await until(() => mesh.nodes['node-2'].logged('bus.connection').length >= 3, {
    what: 'Redis to be back',
  });
  t.is(await exchange(after, 'again'), 'again');
});

test('with the node agent away, the proxy stays ready and serves its pods', async (t) => {
  const { mesh, client, api } = await twoPods(t);
  const node = mesh.nodes['node-2'];
  node.agent.close();
  await until(() => node.logged('zds.disconnected').length > 0, { what: 'the loss to be noticed' });
  const socket = await client.connect(api.ip, 8080);
  t.is(await exchange(socket, 'served'), 'served');
  t.is((await node.get('/healthz/ready')).status, 200);
});

test('a listener thread that dies is replaced and its pod served again', async (t) => {
  const { mesh, client, api } = await twoPods(t, { ZTUNNEL_WORKER_THREADS: '1' });
  const before = await client.connect(api.ip, 8080);
  t.is(await exchange(before, 'before'), 'before');
  await mesh.crashThread('node-2');
  await until(() => mesh.nodes['node-2'].logged('pod.lost').length > 0, { what: 'the loss' });
  await mesh.nodes['node-2'].ready();
  await until(
    async () => {
      const socket = await client.connect(api.ip, 8080);
      const answer = await exchange(socket, 'after');
      socket.destroy();
      return answer === 'after';
    },
    { what: 'a connection after the loss' },
  );
  t.is(mesh.nodes['node-2'].process.exitCode, null);
  const stats = (await mesh.nodes['node-2'].get('/node-proxy/stats')).body;
  t.regex(stats, /^weft_node_proxy_threads_lost_total 1$/m);
});

test('pods come and go; a removed one lets its connection finish', async (t) => {
  const { mesh, client, api } = await twoPods(t, { CONNECTION_TERMINATION_DEADLINE: '60s' });
  const node = mesh.nodes['node-2'];
  const socket = await client.connect(api.ip, 8080);
  t.is(await exchange(socket, 'one'), 'one');
  node.pods.delete(api.zds.uid);
  await node.agent.del(api.zds.uid);
  t.deepEqual((await node.json('/node-proxy/config_dump'))['workloadState'], {});
  t.is(await exchange(socket, 'two'), 'two');
  socket.destroy();
  await until(() => node.logged('pod.stopped').length === 1, { what: 'the end of the drain' });
  node.pods.set(api.zds.uid, api.zds);
  await node.agent.ensure(api.zds);
  const again = await client.connect(api.ip, 8080);
  t.is(await exchange(again, 'three'), 'three');
});

// spec: inpod.md §6
test('SIGTERM lets connections finish, then the process ends', async (t) => {
  const { mesh, client, api } = await twoPods(t, { CONNECTION_TERMINATION_DEADLINE: '60s' });
  const node = mesh.nodes['node-2'];
  const socket = await client.connect(api.ip, 8080);
  t.is(await exchange(socket, 'one'), 'one');
  const exited = once(node.process, 'exit');
  node.process.kill('SIGTERM');
  await until(() => node.logged('pod.stopping').length > 0, { what: 'the drain' });
  t.is(await exchange(socket, 'two'), 'two');
  const ready = await node.get('/healthz/ready');
  t.is(ready.status, 500);
  socket.end();
  t.deepEqual(await exited, [0, null]);
});

test('a process that finds its ports taken publishes others, and takes them when they are free', async (t) => {
  const mesh = await ProxyMesh.start(t, { client: 'node-1' });
  const node = mesh.nodes['node-1'];
  const holder = node.netns.spawn(process.execPath, [
    '-e',
    "require('net').createServer().listen(15020, '::', () => console.log('up'))",
  ]);
  if (holder.stdout === null) throw new Error('no output');
  await once(holder.stdout, 'data');
  node.start();
  await node.ready();
  const ports = await node.json('/node-proxy/ports');
  t.like(ports, { admin: 15_000, readiness: 15_021 });
  t.not(ports['stats'], 15_020);
  t.regex(await curl(node, `http://127.0.0.1:${String(ports['stats'])}/metrics`), /# EOF/);
  holder.kill('SIGKILL');
  await until(async () => (await node.json('/node-proxy/ports'))['stats'] === 15_020, {
    what: 'the standard port',
    timeoutMs: 20_000,
  });
});

test('the admin server changes the log level and stops the process', async (t) => {
  const mesh = await ProxyMesh.start(t, { client: 'node-1' });
  const node = mesh.nodes['node-1'];
  node.start();
  await node.ready();
  const base = 'http://127.0.0.1:15000';
  t.is(await curl(node, '-XPOST', `${base}/logging`), 'current log level is info\n');
  t.is(await curl(node, '-XPOST', `${base}/logging?level=debug`), 'current log level is debug\n');
  t.regex(await curl(node, '-XPOST', `${base}/logging?level=loud`), /invalid level/);
  t.is(await curl(node, '-XPOST', `${base}/logging?reset`), 'current log level is info\n');
  t.regex(await curl(node, `${base}/logging`), /usage: POST \/logging/);
  const exited = once(node.process, 'exit');
  t.is(await curl(node, '-XPOST', `${base}/quitquitquit`), 'shutdown now\n');
  t.deepEqual(await exited, [0, null]);
});

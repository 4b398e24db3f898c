import type { TestMesh } from '../../support/mesh.ts';
import { meshSuite } from '../../support/mesh-suite.ts';
import { until } from '../../support/until.ts';

const test = meshSuite();

const CENTRAL = ['control-plane', 'ca', 'xds-ingester', 'policy-evaluator'] as const;
const DENY_CLIENT_AT_WEB = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: no-client-at-web, namespace: demo }
spec:
  selector: { matchLabels: { app: web } }
  action: DENY
  rules:
    - from: [{ source: { principals: [cluster.local/ns/demo/sa/client] } }]
`;

/** A connection that answers every line it is sent, held open across failures. */
async function hold(mesh: TestMesh) {
  const program = `
    const { connect } = require('node:net');
    const socket = connect({ host: process.argv[1], port: 8080 });
    const ask = () => socket.write('GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n');
    let answers = 0;
    socket.on('data', () => { answers += 1; console.log('answer', answers); setTimeout(ask, 100); });
    socket.on('close', () => { console.log('closed'); process.exit(1); });
    socket.on('error', (error) => console.log(error.message));
    ask();
  `;
  const api = await mesh.pod('demo', 'api-1');
  const held = mesh.background('demo/client', process.execPath, '-e', program, api.ip);
  const answers = (): number =>
    held
      .output()
      .split('\n')
      .filter((line) => line.startsWith('answer')).length;
  await until(() => answers() > 2, { what: 'the held connection to work' });
  return {
    held,
    async stillWorks(what: string): Promise<void> {
      const seen = answers();
      await until(() => answers() > seen + 2, { what: `the held connection to go on ${what}` });
    },
  };
}

for (const [name, node] of [
  ...CENTRAL.map((actor) => [actor, null] as const),
  ['cert-fetcher', 'node-1'] as const,
  ['node-agent', 'node-1'] as const,
]) {
  test(`killing ${name} disturbs no traffic, and it comes back`, async (t, mesh) => {
    const connection = await hold(mesh);
    const pid = await mesh.kill(name, node);
    t.is((await mesh.curl('demo/client', 'http://api/')).code, 0);
    await connection.stillWorks(`without ${name}`);
    await mesh.returned(name, node, pid);
    t.is((await mesh.curl('demo/client', 'http://web/')).code, 0);
    await connection.stillWorks(`with ${name} back`);
    connection.held.kill();
    await connection.held.exit;
  });
}

test('killing Redis disturbs no traffic, and the mesh converges after its return', async (t, mesh) => {
  const connection = await hold(mesh);
  const { pid } = (await mesh.json<{ redis: { pid: number } }>('status')).redis;
  process.kill(pid, 'SIGKILL');
  t.is((await mesh.curl('demo/client', 'http://api/')).code, 0);
  await connection.stillWorks('without Redis');
  await until(
    async () => {
      const status = await mesh.json<{ ready: boolean; redis: { pid: number } }>('status');
      return status.ready && status.redis.pid !== pid;
    },
    { what: 'the mesh to be ready with another Redis', timeoutMs: 60_000 },
  );
  t.is((await mesh.apply(DENY_CLIENT_AT_WEB)).code, 0);
  await until(async () => (await mesh.curl('demo/client', 'http://web/')).code !== 0, {
    what: 'a policy applied afterwards to be enforced',
    timeoutMs: 30_000,
  });
  t.is((await mesh.delete(DENY_CLIENT_AT_WEB)).code, 0);
  await until(async () => (await mesh.curl('demo/client', 'http://web/')).code === 0, {
    what: 'its removal to take effect',
    timeoutMs: 30_000,
  });
  await connection.stillWorks('with Redis back');
  connection.held.kill();
  await connection.held.exit;
});

test('new connections work while everything but the node proxies is stopped', async (t, mesh) => {
  const connection = await hold(mesh);
  const actors = await mesh.actors();
  const { pid: redis } = (await mesh.json<{ redis: { pid: number } }>('status')).redis;
  // Stopped rather than killed: a supervisor would bring killed ones back before the test is through.
  const stopped = [
    ...actors
      .filter((actor) => !['node-proxy', 'redis'].includes(actor.name))
      .map((actor) => actor.pid),
    redis,
  ];
  for (const pid of stopped) process.kill(pid, 'SIGSTOP');
  try {
    for (const target of ['http://api/', 'http://web/', 'http://db:5432/']) {
      const answer = await mesh.exec(
        'demo/client',
        'curl',
        '-s',
        '--http0.9',
        '--max-time',
        '5',
        '-o',
        '/dev/null',
        '-w',
        '%{time_connect}',
        target,
      );
      t.true(Number(answer.stdout) > 0, target);
    }
    for (let round = 0; round < 20; round += 1)
      t.is((await mesh.curl('demo/client', 'http://api/')).code, 0);
    await connection.stillWorks('alone');
  } finally {
    for (const pid of stopped) process.kill(pid, 'SIGCONT');
  }
  await until(async () => (await mesh.json<{ ready: boolean }>('status')).ready, {
    what: 'the mesh to be ready again',
    timeoutMs: 60_000,
  });
  connection.held.kill();
  await connection.held.exit;
});

test('a DENY applied while the evaluator cannot work is enforced', async (t, mesh) => {
  const evaluator = await mesh.actor('policy-evaluator', null);
  process.kill(evaluator.pid, 'SIGSTOP');
  try {
    t.is((await mesh.apply(DENY_CLIENT_AT_WEB)).code, 0);
    await until(async () => (await mesh.curl('demo/client', 'http://web/')).code !== 0, {
      what: 'the policy to be enforced without an evaluator',
    });
  } finally {
    process.kill(evaluator.pid, 'SIGCONT');
  }
  t.is((await mesh.delete(DENY_CLIENT_AT_WEB)).code, 0);
  await until(async () => (await mesh.curl('demo/client', 'http://web/')).code === 0, {
    what: 'its removal to take effect',
  });
});

test('killing one node proxy does not disturb the other node, and its pods come back', async (t, mesh) => {
  const web = await mesh.pod('demo', 'web-1');
  const pid = await mesh.kill('node-proxy', 'node-2');
  t.is((await mesh.curl('demo/client', `http://${web.ip}:8080/`)).code, 0);
  await mesh.returned('node-proxy', 'node-2', pid);
  await until(async () => (await mesh.curl('demo/client', 'http://api/')).code === 0, {
    what: 'the killed node to serve again',
  });
  t.pass();
});

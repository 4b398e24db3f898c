import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { connectSeqpacket } from '../../../../lib/linux/seqpacket.ts';
import type { EdgeInput, EdgeOutcome } from '../../../support/edge-client.ts';
import type { TestMesh } from '../../../support/mesh.ts';
import { test } from './mesh.ts';
import { until } from '../../../support/until.ts';

const EDGE_CLIENT = new URL('../../../support/edge-client.ts', import.meta.url).pathname;

/** Runs `body` and checks that everything still answers, from the same processes as before. */
async function untouched(mesh: TestMesh, body: () => Promise<void>): Promise<boolean> {
  const pids = async (): Promise<string> =>
    (await mesh.actors())
      .map((actor) => `${actor.name}:${actor.pid}`)
      .sort()
      .join();
  const before = await pids();
  await body();
  return (await pids()) === before && (await mesh.curl('demo/client', 'http://api/')).code === 0;
}

for (const [title, yaml, reasons] of [
  ['broken YAML', 'kind: [', [/manifest\.yaml/]],
  [
    'an unknown kind',
    'apiVersion: v1\nkind: Gizmo\nmetadata: { name: x }',
    [/document (0|1)/i, /kind/, /Gizmo/],
  ],
  [
    'a wrong port in the second document',
    'apiVersion: v1\nkind: Namespace\nmetadata: { name: fine }\n---\napiVersion: v1\nkind: Service\nmetadata: { name: s, namespace: demo }\nspec: { ports: [{ port: 99999 }] }',
    [/spec\.ports/, /port/],
  ],
  [
    'a policy with an unknown action',
    'apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: { name: p, namespace: demo }\nspec: { action: PERHAPS }',
    [/spec\.action/],
  ],
] as const) {
  test(`a manifest with ${title} is refused whole, with file, document, path and reason`, async (t, mesh) => {
    const ok = await untouched(mesh, async () => {
      const refused = (): Promise<number> =>
        mesh.metric('control-plane', null, 'weft_control_plane_api_requests_total', {
          operation: 'POST /apply',
          outcome: 'refused',
        });
      const before = await refused();
      const outcome = await mesh.apply(yaml);
      t.is(outcome.code, 1);
      // The command itself refuses invalid YAML and never sends it.
      t.is(await refused(), title === 'broken YAML' ? before : before + 1);
      for (const reason of reasons) t.regex(outcome.stderr, reason);
      t.notRegex(outcome.stderr, /\n\s+at /);
    });
    t.true(ok);
    const services = await mesh.json<{ name: string }[]>('get', 'services');
    t.false(services.some((service) => service.name === 's'));
  });
}

for (const args of [
  ['bogus'],
  ['get', 'gizmos'],
  ['get', 'pods', '-o', 'xml'],
  ['policy', 'explain', '--from', 'x', '--to', 'demo/api:80'],
  ['exec', 'demo'],
]) {
  test(`wrong usage is refused with status 2: ${args.join(' ')}`, async (t, mesh) => {
    const outcome = await mesh.weft(...args);
    t.is(outcome.code, 2, outcome.stderr);
    t.true(outcome.stderr.length > 0);
    t.notRegex(outcome.stderr, /\n\s+at /);
  });
}

test('a pod that does not exist is a failed operation, with status 1', async (t, mesh) => {
  const outcome = await mesh.weft('exec', 'demo/nobody', '--', 'true');
  t.is(outcome.code, 1);
  t.regex(outcome.stderr, /demo\/nobody/);
});

test('garbage, HTTP/1 and TLS without or with a foreign certificate on 15008 are refused and leave the proxy alive', async (t, mesh) => {
  const api = await mesh.pod('demo', 'api-1');
  const [handshakes, denials] = [
    { name: 'weft_hbone_handshakes_total', labels: { result: 'refused' } },
    { name: 'weft_listener_early_denials_total', labels: { reason: 'early-denial' } },
  ].map(
    ({ name, labels }) =>
      (): Promise<number> =>
        mesh.stat('node-2', name, labels),
  ) as [() => Promise<number>, () => Promise<number>];
  const before = [await handshakes(), await denials()];
  const ok = await untouched(mesh, async () => {
    const script = `
      set -u
      head -c 1000 /dev/urandom | timeout 30 bash -c 'exec 3<>/dev/tcp/${api.ip}/15008; cat >&3; cat <&3' >/dev/null
      curl -sS -m30 http://${api.ip}:15008/ && echo accepted
      curl -sSk -m30 --http2 https://${api.ip}:15008/ && echo accepted
      cd "$(mktemp -d)"
      openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out cert -days 1 -subj / \\
        -addext 'subjectAltName=critical,URI:spiffe://cluster.local/ns/demo/sa/client' 2>/dev/null
      curl -sSk -m30 --http2 --cert cert --key key https://${api.ip}:15008/ && echo accepted
      rm -rf "$PWD"
      true
    `;
    const outcome = await mesh.exec('plain/outsider', 'bash', '-c', script);
    t.notRegex(outcome.stdout, /accepted/);
  });
  t.true(ok);
  const refused = await until(
    async () => {
      const lines = (await mesh.log('node-proxy', 'node-2')).filter(
        (line) => line['scope'] === 'access' && line['level'] === 'warn',
      );
      return lines.length >= 4 ? lines : null;
    },
    { what: 'four early denials' },
  );
  for (const line of refused) {
    t.regex(String(line['error']), /\w+ \w+/);
    t.regex(
      String(line['dst.addr'] ?? line['destination']),
      new RegExp(api.ip.replaceAll('.', '\\.')),
    );
  }
  const counted = async (): Promise<boolean> =>
    (await handshakes()) >= Number(before[0]) + 4 && (await denials()) >= Number(before[1]) + 4;
  await until(counted, { what: 'the refusals to be counted' });
});

test('a peer with a good certificate that sends nonsense is refused request by request', async (t, mesh) => {
  const [api, db] = [await mesh.pod('demo', 'api-1'), await mesh.pod('demo', 'db')];
  const count = {
    csr: () => mesh.metric('ca', null, 'citadel_server_csr_parsing_err_count'),
    connect: () =>
      mesh.stat('node-2', 'weft_listener_early_denials_total', {
        reason: 'early-denial',
      }),
  };
  const before = { csr: await count.csr(), connect: await count.connect() };
  const ok = await untouched(mesh, async () => {
    const input: EdgeInput = {
      ca: 'https://10.200.0.3:15012',
      roots: join(mesh.directory, 'roots', 'root-cert.pem'),
      token: join(mesh.directory, 'tokens', 'node-1', 'istio-token'),
      identity: 'spiffe://cluster.local/ns/demo/sa/client',
      pod: api.ip,
      other: db.ip,
    };
    const run = await mesh.inNetns('node-1', process.execPath, EDGE_CLIENT, JSON.stringify(input))
      .exit;
    t.is(run.code, 0, run.stderr);
    const { csr, statuses } = JSON.parse(run.stdout) as EdgeOutcome;
    t.regex(csr, /not a PEM certificate request/);
    t.deepEqual(statuses, {
      get: 400,
      'no port': 400,
      'port out of range': 400,
      rubbish: 400,
      'another pod': 400,
      good: 200,
    });
  });
  t.true(ok);
  t.is(await count.csr(), before.csr + 1);
  await until(async () => (await count.connect()) === before.connect + 5, {
    what: 'five refused requests to be counted',
  });
  const lines = (await mesh.log('node-proxy', 'node-2')).map((line) => String(line['error']));
  t.true(lines.some((line) => /method \\?"GET\\?" is not CONNECT/.test(line)));
  t.true(lines.some((line) => line.includes('%%%')));
});

test('a ZDS client that speaks nonsense is cut off, logged and counted', async (t, mesh) => {
  const broken = (): Promise<number> =>
    mesh.metric('node-agent', 'node-2', 'nodeagent_zds_broken_total');
  const before = await broken();
  const ok = await untouched(mesh, async () => {
    const connection = connectSeqpacket(join(mesh.directory, 'nodes', 'node-2', 'ztunnel.sock'));
    const closed = new Promise((resolve) => {
      connection.onClose = resolve;
    });
    await connection.send(Buffer.from('nonsense'));
    await closed;
    await until(async () => (await broken()) === before + 1, { what: 'it to be counted' });
  });
  t.true(ok);
  const line = (await mesh.log('node-agent', 'node-2')).find(
    ({ message }) => message === 'zds.proxy-broken',
  );
  t.truthy(line?.['error'] ?? line?.['reason'], JSON.stringify(line));
});

test('a malformed entry in the state stream is named, counted and skipped', async (t, mesh) => {
  const socket = join(mesh.directory, 'redis', 'redis.sock');
  const secret = (
    await readFile(join(mesh.directory, 'secrets', 'redis', 'xds-ingester'), 'utf8')
  ).trim();
  const malformed = (node: string): Promise<number> =>
    mesh.metric('node-proxy', node, 'weft_bus_malformed_total', { table: 'addresses' });
  const ok = await untouched(mesh, async () => {
    const outcome = await mesh.start('redis-cli', [
      '-s',
      socket,
      '--user',
      'xds-ingester',
      '--pass',
      secret,
      '--no-auth-warning',
      'XADD',
      'weft:{mesh}:state:addresses:log',
      '*',
      'rubbish',
      'x',
    ]).exit;
    t.regex(outcome.stdout, /^\d+-\d+/, outcome.stdout + outcome.stderr);
    const id = outcome.stdout.trim();
    await until(
      async () =>
        (await mesh.log('node-proxy', 'node-1')).some(
          (line) => line['message'] === 'bus.malformed' && JSON.stringify(line).includes(id),
        ),
      { what: 'the reader to name the entry' },
    );
    for (const node of ['node-1', 'node-2']) {
      await until(async () => (await malformed(node)) === 1, { what: `${node} to count it` });
    }
  });
  t.true(ok);
});

test('a node cannot use Redis beyond its own keys', async (t, mesh) => {
  const socket = join(mesh.directory, 'redis', 'redis.sock');
  const secret = (
    await readFile(join(mesh.directory, 'secrets', 'redis', 'node-proxy.node-1'), 'utf8')
  ).trim();
  for (const command of [
    ['HGETALL', 'weft:{node-2}:state:enrolments:data'],
    ['DEL', 'weft:{mesh}:state:addresses:data'],
    ['KEYS', '*'],
    ['CONFIG', 'GET', '*'],
    ['FLUSHALL'],
  ]) {
    const outcome = await mesh.start('redis-cli', [
      '-s',
      socket,
      '--user',
      'node-proxy.node-1',
      '--pass',
      secret,
      '--no-auth-warning',
      ...command,
    ]).exit;
    t.regex(outcome.stdout, /NOPERM/, command.join(' '));
  }
});

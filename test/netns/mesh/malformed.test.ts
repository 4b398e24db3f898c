import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TestMesh } from '../../support/mesh.ts';
import { meshSuite } from '../../support/mesh-suite.ts';
import { until } from '../../support/until.ts';

const test = meshSuite();

/** Everything still answers, under the same processes as before. */
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
      const outcome = await mesh.apply(yaml);
      t.is(outcome.code, 1);
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
  const outcome = await mesh.exec('demo/nobody', 'true');
  t.is(outcome.code, 1);
  t.regex(outcome.stderr, /demo\/nobody/);
});

test('garbage, HTTP/1 and TLS without or with a foreign certificate on 15008 are refused and leave the proxy alive', async (t, mesh) => {
  const api = await mesh.pod('demo', 'api-1');
  const ok = await untouched(mesh, async () => {
    const script = `
      set -u
      head -c 1000 /dev/urandom | timeout 5 bash -c 'exec 3<>/dev/tcp/${api.ip}/15008; cat >&3; cat <&3' >/dev/null
      curl -sS -m5 http://${api.ip}:15008/ && echo accepted
      curl -sSk -m5 --http2 https://${api.ip}:15008/ && echo accepted
      cd "$(mktemp -d)"
      openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out cert -days 1 -subj / \\
        -addext 'subjectAltName=critical,URI:spiffe://cluster.local/ns/demo/sa/client' 2>/dev/null
      curl -sSk -m5 --http2 --cert cert --key key https://${api.ip}:15008/ && echo accepted
      rm -rf "$PWD"
      true
    `;
    const outcome = await mesh.exec('plain/outsider', 'bash', '-c', script);
    t.notRegex(outcome.stdout, /accepted/);
  });
  t.true(ok);
  const refused = (await mesh.log('node-proxy', 'node-2')).filter(
    (line) => line['scope'] === 'access' && line['level'] === 'warn',
  );
  t.true(refused.length >= 3, `early denials: ${JSON.stringify(refused)}`);
});

test('a malformed entry in the state stream is named, counted and skipped', async (t, mesh) => {
  const socket = join(mesh.directory, 'redis', 'redis.sock');
  const secret = (
    await readFile(join(mesh.directory, 'secrets', 'redis', 'xds-ingester'), 'utf8')
  ).trim();
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
    await until(
      async () =>
        (await mesh.log('node-proxy', 'node-1')).some(
          (line) => line['level'] === 'error' && JSON.stringify(line).includes('addresses'),
        ),
      { what: 'the reader to name the entry' },
    );
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

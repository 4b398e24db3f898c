import { randomBytes } from 'node:crypto';
import type { TraceResult } from '../../../../services/cli/trace/render.ts';
import { captureWhile } from '../../../support/capture.ts';
import { test } from './mesh.ts';
import type { TestMesh } from '../../../support/mesh.ts';
import { until } from '../../../support/until.ts';

const IDENTITY = {
  client: 'spiffe://cluster.local/ns/demo/sa/client',
  api: 'spiffe://cluster.local/ns/demo/sa/api',
};

/** Finds the access lines of a node's proxy that have all of the given fields. */
async function accessLines(mesh: TestMesh, node: string, fields: Record<string, unknown>) {
  return (await mesh.log('node-proxy', node)).filter(
    (line) =>
      line['scope'] === 'access' &&
      Object.entries(fields).every(([name, value]) => line[name] === value),
  );
}

/** Sums a counter over the series that have all of the given labels. */
function counter(text: string, name: string, labels: Record<string, string>): number {
  return text
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`))
    .filter((line) =>
      Object.entries(labels).every(([key, value]) => line.includes(`${key}="${value}"`)),
    )
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
}

test('a request to a service on the other node is answered, and only TLS to 15008 crosses the link', async (t, mesh) => {
  const secret = `secret-${randomBytes(12).toString('hex')}`;
  const client = await mesh.pod('demo', 'client');
  // Capture the traffic of pods only; the actors' own traffic crosses the link too.
  const captured = await captureWhile(
    { netns: mesh.netns('node-1'), device: 'eth0', filter: 'tcp and net 10.128.0.0/10' },
    async () => {
      const answer = await mesh.curl(
        'demo/client',
        '-d',
        secret,
        '-H',
        `x-secret: ${secret}`,
        'http://api/sink',
      );
      t.is(answer.code, 0, answer.stderr);
      const page = await mesh.curl('demo/client', 'http://api/');
      t.regex(page.stdout, /api-[12]/);
      t.true(page.stdout.includes(client.ip), 'the server sees the client pod as its peer');
    },
  );
  t.true(captured.packets.length > 0);
  t.false(captured.bytes.includes(secret), 'the payload is not readable on the link');
  t.deepEqual(
    captured.packets.filter((line) => !line.includes('.15008')),
    [],
  );
});

test('both sides log one access line with both identities and count the connection as mutual_tls', async (t, mesh) => {
  const labels = {
    connection_security_policy: 'mutual_tls',
    source_workload: 'client',
    destination_service: 'api.demo.svc.cluster.local',
  };
  const name = 'istio_tcp_connections_closed_total';
  // The previous test's connections are counted once they have ended on both sides.
  await until(
    async () => !(await mesh.connections()).some((line) => line.sourceIdentity === IDENTITY.client),
    { what: 'earlier connections to end' },
  );
  const before = {
    source: counter(await mesh.stats('node-1'), name, { ...labels, reporter: 'source' }),
    destination: counter(await mesh.stats('node-2'), name, { ...labels, reporter: 'destination' }),
  };
  const fields = { 'src.identity': IDENTITY.client, 'dst.identity': IDENTITY.api };
  // Lines of the previous test may not have reached the log yet.
  const since = new Date().toISOString();
  const lines = async (node: string, direction: string): Promise<number> =>
    (await accessLines(mesh, node, { ...fields, direction })).filter(
      (line) => String(line['time']) >= since,
    ).length;
  t.is((await mesh.curl('demo/client', 'http://api.demo.svc.cluster.local/')).code, 0);
  await until(
    async () =>
      counter(await mesh.stats('node-1'), name, { ...labels, reporter: 'source' }) ===
        before.source + 1 &&
      counter(await mesh.stats('node-2'), name, { ...labels, reporter: 'destination' }) ===
        before.destination + 1,
    { what: 'both metrics to count one more' },
  );
  await until(
    async () =>
      (await lines('node-1', 'outbound')) === 1 && (await lines('node-2', 'inbound')) === 1,
    { what: 'one line more of each' },
  );
  t.pass();
});

test('an open connection is listed with both identities and its bytes until it ends', async (t, mesh) => {
  const held = mesh.background(
    'demo/client',
    'bash',
    '-c',
    'exec 3<>/dev/tcp/db/5432; exec cat <&3',
  );
  const find = async () =>
    (await mesh.connections()).filter(
      (line) =>
        line.sourceIdentity === IDENTITY.client &&
        line.destinationIdentity?.endsWith('/sa/db') === true,
    );
  const lines = await until(
    async () => {
      const found = await find();
      return found.length === 2 && found.every((line) => line.bytesSent + line.bytesReceived > 0)
        ? found
        : null;
    },
    { what: 'the connection to be listed by both proxies' },
  );
  t.deepEqual(lines.map((line) => line.direction).sort(), ['inbound', 'outbound']);
  for (const line of lines) t.is(line.protocol, 'HBONE');
  held.kill();
  await until(async () => (await find()).length === 0, {
    what: 'the connection to leave the list',
  });
});

for (const [title, pod] of [
  ['on the other node', 'api-1'],
  ['on the same node', 'web-1'],
] as const) {
  test(`a pod ${title} answers when addressed by IPv4 and IPv6, with both identities`, async (t, mesh) => {
    const addresses = (
      await mesh.exec(`demo/${pod}`, 'ip', '-o', 'addr', 'show', 'scope', 'global')
    ).stdout;
    const own = [...addresses.matchAll(/inet6? ([0-9a-f.:]+)\//g)].map((match) => match[1] ?? '');
    t.true(own.some((ip) => ip.includes('.')) && own.some((ip) => ip.includes(':')), addresses);
    for (const ip of own) {
      const host = ip.includes(':') ? `[${ip}]` : ip;
      const answer = await mesh.curl('demo/client', `http://${host}:8080/`);
      t.regex(answer.stdout, new RegExp(pod), `${host}: ${answer.stderr}`);
      const node = pod === 'api-1' ? 'node-2' : 'node-1';
      const line = await until(
        async () =>
          (
            await accessLines(mesh, node, { direction: 'inbound', 'src.identity': IDENTITY.client })
          ).findLast((candidate) => String(candidate['dst.hbone_addr']) === `${host}:8080`),
        { what: 'the inbound access line' },
      );
      // Both ends are in one proxy, so TLS would add no protection.
      const path = pod === 'web-1' ? 'same-node' : undefined;
      t.is(line['path'], path);
      await until(
        async () =>
          (await accessLines(mesh, 'node-1', { direction: 'outbound', path })).some(
            (outbound) => outbound['trace_id'] === line['trace_id'],
          ),
        { what: 'the outbound access line' },
      );
    }
  });
}

test('a service answers on its IPv6 address', async (t, mesh) => {
  const answer = await mesh.curl('demo/client', '-6', 'http://api/');
  t.regex(answer.stdout, /api-[12]/, answer.stderr);
});

test('traffic to and from a pod outside the mesh passes through, source address kept', async (t, mesh) => {
  const [client, outsider] = [
    await mesh.pod('demo', 'client'),
    await mesh.pod('plain', 'outsider'),
  ];
  const out = await mesh.curl('demo/client', `http://${outsider.ip}:8080/`);
  t.regex(out.stdout, /outsider/, out.stderr);
  t.true(out.stdout.includes(client.ip));
  const web = await mesh.pod('demo', 'web-1');
  const into = await mesh.curl('plain/outsider', `http://${web.ip}:8080/`);
  t.regex(into.stdout, /web-1/, into.stderr);
  t.true(into.stdout.includes(outsider.ip));
  await until(
    async () =>
      counter(await mesh.stats('node-1'), 'istio_tcp_connections_closed_total', {
        reporter: 'destination',
        connection_security_policy: 'unknown',
        destination_workload: 'web-1',
      }) > 0,
    { what: 'the plaintext connection to be counted' },
  );
});

test('a port nobody listens on closes the connection, and the access line says why', async (t, mesh) => {
  const api = await mesh.pod('demo', 'api-1');
  const answer = await mesh.curl('demo/client', `http://${api.ip}:9/`);
  t.not(answer.code, 0);
  await until(
    async () =>
      (await accessLines(mesh, 'node-2', { direction: 'inbound' })).some(
        (line) => line['dst.hbone_addr'] === `${api.ip}:9` && typeof line['error'] === 'string',
      ),
    { what: 'an access line with the error' },
  );
});

test('a connection is traced through both proxies, from its decision to both access lines', async (t, mesh) => {
  const traced = await mesh.weft(
    'trace',
    'demo/client',
    'demo/api:80',
    '--send',
    'GET / HTTP/1.0\\r\\n\\r\\n',
    '-o',
    'json',
  );
  t.is(traced.code, 0, traced.stderr);
  const { traceId, source, tunnel, destination } = JSON.parse(traced.stdout) as TraceResult;
  t.like(source, { node: 'node-1', protocol: 'HBONE', service: 'api.demo.svc.cluster.local' });
  t.like(source.route, { kind: 'hbone', via: 'direct' });
  t.is(tunnel?.peerIdentity, IDENTITY.api);
  t.like(destination, {
    node: 'node-2',
    peerIdentity: IDENTITY.client,
    session: tunnel?.session ?? '',
    bytesSent: source.bytesReceived,
    bytesReceived: 'GET / HTTP/1.0\r\n\r\n'.length,
  });
  t.like(destination?.policy, { allowed: true });
  for (const end of [source, destination]) {
    t.like(end?.end, { flag: '-', error: null });
    t.is(end?.accessLine?.['trace_id'], traceId ?? 'none');
    t.is(typeof end?.steps.firstByteMs, 'number');
  }
  await until(async () => (await accessLines(mesh, 'node-2', { trace_id: traceId })).length === 1, {
    what: 'the log to have the line too',
  });
});

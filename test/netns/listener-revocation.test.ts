import { parseRevocationLists } from '../../lib/identity/crl.ts';
import { issueCrl } from '../support/crl-kit.ts';
import { TestMesh } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { readAll } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';

const CLIENT = 'spiffe://cluster.local/ns/demo/sa/client';

// spec: hbone.md §4
test('a revoked pod loses its live connections and makes no new ones; both ends say CERT_REVOKED', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 2, revocation: true });
  const client = await mesh.addPod('client');
  const other = await mesh.addPod('other');
  const web = await mesh.addPod('web', { thread: 1 });
  await web.serve(8080, (socket) => socket.pipe(socket));
  const live = await client.connect(web.ip, 8080);
  const fine = await other.connect(web.ip, 8080);
  for (const socket of [live, fine]) {
    socket.write('x');
    await new Promise((resolve) => socket.once('data', resolve).resume());
  }
  live.on('error', () => undefined);
  live.once('end', () => live.end());
  const closed = new Promise((resolve) => live.once('close', resolve));
  const revoked = [mesh.chains.get(CLIENT) ?? ''];
  mesh.revoke(parseRevocationLists(await issueCrl(mesh.pki.root, { revoked })));
  await closed;
  const inbound = await until(
    () =>
      mesh
        .access('connection complete')
        .find((line) => line['direction'] === 'inbound' && line['src.identity'] === CLIENT),
    { what: 'the access line of the cut connection' },
  );
  t.regex(String(inbound['error']), /a certificate of the peer is revoked: serial [0-9A-F]+/);
  t.is(await mesh.metric('istio_crl_policy_rejections_total', { reporter: 'destination' }), 1);
  t.is(
    await mesh.metric('istio_tcp_connections_failed_total', {
      reporter: 'destination',
      response_flags: 'CERT_REVOKED',
    }),
    1,
  );

  const refused = await client.connect(web.ip, 8080);
  refused.on('error', () => undefined);
  refused.resume().end();
  await new Promise((resolve) => refused.once('close', resolve));
  const denial = await until(
    () =>
      mesh.access('connection failed').find((line) => String(line['error']).includes('is revoked')),
    { what: 'the refusal of the new connection' },
  );
  t.is(denial['direction'], 'inbound');

  fine.end('still here');
  t.is((await readAll(fine)).toString(), 'still here');
});

// spec: hbone.md §4
test('a tunnel to a revoked pod is dropped at the client, pooled ones too', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 2, revocation: true });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web', { thread: 1 });
  await web.serve(8080, (socket) => socket.pipe(socket));
  const first = await client.connect(web.ip, 8080);
  first.end('pooled');
  t.is((await readAll(first)).toString(), 'pooled');
  await until(async () => (await mesh.metric('weft_hbone_tunnels_idle')) === 1, {
    what: 'the pooled tunnel',
  });
  const revoked = [mesh.chains.get('spiffe://cluster.local/ns/demo/sa/web') ?? ''];
  mesh.revoke(parseRevocationLists(await issueCrl(mesh.pki.root, { revoked })));
  await until(async () => (await mesh.metric('weft_hbone_tunnels_open')) === 0, {
    what: 'the pooled tunnel to go',
  });
  const socket = await client.connect(web.ip, 8080);
  socket.on('error', () => undefined);
  socket.resume().end();
  await new Promise((resolve) => socket.once('close', resolve));
  const line = await until(
    () =>
      mesh
        .access('connection complete')
        .find((item) => item['direction'] === 'outbound' && item['error'] !== undefined),
    { what: 'the access line' },
  );
  t.regex(String(line['error']), /a certificate of the peer is revoked/);
  t.is(
    await mesh.metric('istio_tcp_connections_failed_total', {
      reporter: 'source',
      response_flags: 'CERT_REVOKED',
    }),
    1,
  );
});

import { http2Engine } from '../support/engine-http2/engine.ts';
import { serveHbone, tunnelTo } from '../support/hbone-peer.ts';
import { TestMesh } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { ask, closed, echo, heard } from '../support/tcp-talk.ts';
import { echo as echoTunnel, roundTrip } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';

const PEER = 'spiffe://cluster.local/ns/demo/sa/peer';

test('a removed workload that answers keeps its connections, one that does not loses them long before a PING is due', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const client = await mesh.addPod('client');
  await client.serve(8080, echo);
  const peer = await mesh.addPod('peer', {
    enrolled: false,
    workload: { tunnelProtocol: 'HBONE' },
  });
  const at = { pod: peer, identity: PEER, engine: http2Engine };
  const served = await serveHbone(t, mesh, at, echoTunnel);
  await peer.serve(7, echo);
  // One connection each way, so that both kinds of tunnel exist.
  const out = await client.connect(peer.ip, 9000);
  out.write('a');
  t.is(await heard(out), 'a');
  const inward = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, client.ip);
  const stream = await inward.open({ authority: `${client.ip}:8080`, headers: {} });

  mesh.state.set(peer.workload.uid, null);
  const probes = (result: string) => mesh.metric('weft_peer_probes_total', { result });
  await until(async () => (await probes('alive')) === 2, { what: 'both probes' });
  out.write('b');
  t.is(await heard(out), 'b');
  t.is((await roundTrip(stream, 'still here')).toString(), 'still here');
  // Its address now belongs to no workload, so a new connection goes there in plaintext.
  // Port 7 is an echo; a tunnel's server would wait for a handshake before it closes.
  (await client.connect(peer.ip, 7)).destroy();
  await until(
    () => mesh.access('connection complete').some((line) => line['dst.identity'] === undefined),
    { what: 'the plain connection' },
  );
  t.is(served.requests.length, 1);

  mesh.state.set(peer.workload.uid, { kind: 'workload', workload: peer.workload });
  t.is(await probes('alive'), 2);
  await mesh.unplug(peer);
  mesh.state.set(peer.workload.uid, null);
  // The tunnel's PINGs would take 20 s or more and give another reason.
  await closed(out);
  await until(async () => (await probes('dead')) === 2, { what: 'the dead peer' });
  t.is(await mesh.metric('weft_hbone_tunnels_open'), 0);
  const cut = mesh.access('connection complete').find((line) => 'error' in line);
  t.is(cut?.['dst.identity'], PEER);
  t.regex(String(cut?.['error']), /no sign of life/);
});

test('nobody is probed while the mesh cannot tell', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web');
  await web.serve(8080, echo);
  const socket = await client.connect(web.ip, 8080);
  socket.write('a');
  await heard(socket);
  mesh.state.synced = false;
  mesh.state.set(web.workload.uid, { kind: 'workload', workload: { ...web.workload, node: 'x' } });
  t.is(await ask(socket, 'b'), 'b');
  t.is(await mesh.metric('weft_peer_probes_total'), 0);
});

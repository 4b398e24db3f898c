import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { ConnectionOptions } from 'node:tls';
import type { CredentialSource } from '../../lib/hbone/credentials.ts';
import { parseRevocationLists } from '../../lib/identity/crl.ts';
import { MAX_PENDING_HANDSHAKES_PER_SOURCE } from '../../workers/listener/limits.ts';
import { issueCrl } from '../support/crl-kit.ts';
import { TestMesh } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { ask, echo } from '../support/tcp-talk.ts';
import { createTunnelPki } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

// spec: dataplane.md §2.1.1
test('a client that dials the listener itself is refused, also at an address the mesh does not know', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const client = await mesh.addPod('client');
  const half = await mesh.addPod('half', { workload: { addresses: ['10.9.0.200'] } });
  for (const [pod, ip] of [
    [client, client.ip],
    [client, '127.0.0.1'],
    [client, '::1'],
    [half, half.ip],
    [half, half.ip6],
  ] as const) {
    const socket = await pod.connect(ip, 15_001);
    const closed = new Promise((resolve) => socket.once('close', resolve));
    // A refusal with unread bytes may end the connection with a reset.
    socket.on('error', () => undefined);
    socket.resume().end('x');
    await closed;
  }
  const refusals = await until(
    () => {
      const lines = mesh.access('connection failed');
      return lines.length >= 5 ? lines : null;
    },
    { what: 'the refusals to be logged' },
  );
  t.true(refusals.every((line) => String(line['error']).includes("port 15001 is the proxy's own")));
  t.is((await mesh.connections()).length, 0);
});

test('silent connections of one client hold up nobody else', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1, handshakeTimeoutMs: 120_000 });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web');
  const silent = await mesh.addPod('silent', { enrolled: false });
  await web.serve(8080, echo);
  const sockets: Socket[] = [];
  const surplus = 20;
  for (let n = 0; n < MAX_PENDING_HANDSHAKES_PER_SOURCE + surplus; n += 1) {
    sockets.push(await silent.connect(web.ip, 15_008));
  }
  const refused = (): Promise<number> =>
    mesh.metric('weft_listener_early_denials_total', { reason: 'peer-handshake-limit' });
  await until(async () => (await refused()) >= surplus, { what: 'the surplus to be refused' });
  t.is(await refused(), surplus);
  t.is(await ask(await client.connect(web.ip, 8080), 'hello'), 'hello');
  for (const socket of sockets) socket.destroy();
});

/** Tries a TLS handshake; a refusal may arrive after the client's own part is done. */
async function shakeHands(raw: Socket, options: ConnectionOptions): Promise<void> {
  const socket = connectTls({
    socket: raw,
    ALPNProtocols: ['h2'],
    checkServerIdentity: () => undefined,
    rejectUnauthorized: false,
    ...options,
  });
  socket.on('error', () => undefined);
  raw.on('error', () => undefined);
  socket.resume().once('end', () => socket.destroy());
  await new Promise((resolve) => raw.once('close', resolve));
}

// spec: hbone.md §3
test('a client is refused by name whose certificate is missing, foreign, expired, revoked, or of no identity here', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1, revocation: true });
  const web = await mesh.addPod('web');
  const evil = await mesh.addPod('evil', { enrolled: false });
  const client = await mesh.addPod('client');
  await web.serve(8080, echo);
  const foreign = await createTunnelPki('foreign');
  const identity = 'spiffe://cluster.local/ns/demo/sa/evil';
  const revoked = await mesh.pki.issue(identity, { intermediate: true });
  mesh.revoke(
    parseRevocationLists(await issueCrl(mesh.pki.middle, { revoked: [revoked.chainPem] })),
  );
  const cases: readonly (readonly [CredentialSource | null, RegExp])[] = [
    [null, /peer did not return a certificate|no.*certificate/i],
    [await foreign.issue(identity), /UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER/],
    [await mesh.pki.issue(identity, { lifeMs: -60_000 }), /expired/i],
    [revoked, /is revoked: serial [0-9A-F]+ of the authority O=test 2/],
    [await mesh.pki.issue('https://example.com/evil'), /names no identity/],
    [
      await mesh.pki.issue('spiffe://elsewhere/ns/demo/sa/evil'),
      /not of the trust domain cluster.local/,
    ],
  ];
  for (const [index, [source, reason]] of cases.entries()) {
    if (typeof source?.key === 'string') throw new Error('a KeyObject is issued');
    const own =
      source === null
        ? {}
        : { cert: source.chainPem, key: source.key.export({ type: 'pkcs8', format: 'pem' }) };
    await shakeHands(await evil.connect(web.ip, 15_008), own);
    const line = await until(() => mesh.access('connection failed')[index], {
      what: `refusal ${index}`,
    });
    t.regex(String(line['error']), reason);
    t.is(line['src.addr']?.toString().split(':')[0], evil.ip);
  }
  const refused = await mesh.metric('weft_hbone_handshakes_total', { result: 'refused' });
  t.is(refused, cases.length);
  t.is(await ask(await client.connect(web.ip, 8080), 'hello'), 'hello');
});

test('a hello that comes byte by byte and never ends holds a descriptor until its time is up, and nobody else', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1, handshakeTimeoutMs: 4_000 });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web');
  const slow = await mesh.addPod('slow', { enrolled: false });
  await web.serve(8080, echo);
  // The honest tunnel stands before, because the time of a handshake is short here.
  t.is(await ask(await client.connect(web.ip, 8080), 'hello'), 'hello');
  const sockets = await Promise.all(
    Array.from({ length: 100 }, () => slow.connect(web.ip, 15_008)),
  );
  const closed = sockets.map((socket) => {
    socket.on('error', () => undefined);
    socket.resume().once('end', () => socket.destroy());
    return new Promise((resolve) => socket.once('close', resolve));
  });
  // A handshake record header of 512 bytes, and the first bytes of a hello.
  for (const byte of [0x16, 0x03, 0x01, 0x02, 0x00, 0x01]) {
    for (const socket of sockets) socket.write(Buffer.of(byte));
    t.is(await ask(await client.connect(web.ip, 8080), 'hello'), 'hello');
  }
  await Promise.all(closed);
  await until(async () => (await mesh.metric('weft_listener_handshakes_pending')) === 0, {
    what: 'the handshakes to be given up',
  });
  t.is(await mesh.metric('weft_hbone_handshakes_total', { result: 'refused' }), sockets.length);
});

test('what a client may have of a pod is bounded, and its neighbours have the rest', async (t) => {
  const limits = {
    connections: null,
    handshakes: 4_000,
    bytes: 268_435_456,
    bytesPerPod: 67_108_864,
    // A client may have half of them.
    connectionsPerPod: 10,
  };
  const mesh = await TestMesh.start(t, { threads: 1, limits, handshakeTimeoutMs: 120_000 });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web');
  const greedy = await mesh.addPod('greedy', { enrolled: false });
  await web.serve(8080, echo);
  const held = await Promise.all(Array.from({ length: 12 }, () => greedy.connect(web.ip, 15_008)));
  for (const socket of held) socket.on('error', () => undefined);
  const refused = (): Promise<number> =>
    mesh.metric('weft_listener_early_denials_total', { reason: 'peer-connection-limit' });
  await until(async () => (await refused()) === 7, { what: 'what is beyond to be refused' });
  t.is(await ask(await client.connect(web.ip, 8080), 'hello'), 'hello');
  for (const socket of held) socket.destroy();
  await until(async () => (await mesh.metric('weft_listener_handshakes_pending')) === 0, {
    what: 'the share to be free again',
  });
  const again = await greedy.connect(web.ip, 15_008);
  again.on('error', () => undefined);
  await until(async () => (await mesh.metric('weft_listener_handshakes_pending')) === 1, {
    what: 'the client to be let in again',
  });
  t.is(await refused(), 7);
});

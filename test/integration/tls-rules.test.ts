/** Tests the offers and choices of our TLS from the other end of the wire. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import type { ConnectionOptions, TLSSocket } from 'node:tls';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import { openGrpcClient } from '../../lib/grpc/client.ts';
import { RootsCredentials } from '../../lib/grpc/credentials.ts';
import { DEFAULT_TLS_POLICY } from '../../lib/tls/parameters.ts';
import type { TlsPolicy } from '../../lib/tls/parameters.ts';
import { Tls, parseClientHello } from '../support/client-hello.ts';
import type { ClientHello } from '../support/client-hello.ts';
import {
  dial,
  echo,
  openTunnel,
  request,
  roundTrip,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import { CLIENT, SERVER, createTunnelPki, credentials } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

const AES_256 = 0x1302;
const AES_128 = 0x1301;
/** ECDHE-ECDSA and ECDHE-RSA with AES-256-GCM and AES-128-GCM. */
const TLS12_SUITES = [0xc02c, 0xc02b, 0xc030, 0xc02f];
/** Signals support for secure renegotiation; it is not a cipher suite. */
const SCSV = 0x00ff;

/** Opens a port and returns the first ClientHello that arrives at it. */
async function heard(t: ExecutionContext): Promise<{ port: number; hello: Promise<ClientHello> }> {
  const { promise, resolve } = Promise.withResolvers<ClientHello>();
  const server = createServer((socket) => {
    let bytes = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      const hello = parseClientHello(bytes);
      if (hello === null) return;
      resolve(hello);
      socket.destroy();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return { port: (server.address() as AddressInfo).port, hello: promise };
}

async function helloOf(t: ExecutionContext, policy: Partial<TlsPolicy>): Promise<ClientHello> {
  const pki = await createTunnelPki();
  const own = credentials(await pki.issue(CLIENT), policy);
  const { port, hello } = await heard(t);
  await t.throwsAsync(carriedEngine.connect(await dial(t, port), tunnelOptions(own)));
  return hello;
}

async function server(t: ExecutionContext, policy: Partial<TlsPolicy> = {}) {
  const pki = await createTunnelPki();
  const own = credentials(await pki.issue(SERVER), policy);
  const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(own), echo);
  const client = await pki.issue(CLIENT);
  if (typeof client.key === 'string') throw new Error('a KeyObject is issued');
  const key = client.key.export({ type: 'pkcs8', format: 'pem' });
  const attempt = async (options: ConnectionOptions): Promise<TLSSocket> => {
    const socket = connectTls({
      socket: await dial(t, fixture.port),
      ca: pki.rootPem,
      cert: client.chainPem,
      key,
      ALPNProtocols: ['h2'],
      checkServerIdentity: () => undefined,
      ...options,
    });
    socket.on('error', () => {});
    t.teardown(() => socket.destroy());
    await once(socket, 'secureConnect');
    return socket;
  };
  return { pki, fixture, attempt };
}

// spec: hbone.md §2
test('a client offers TLS 1.3 with two suites, h2 alone, no name and nothing to resume', async (t) => {
  const hello = await helloOf(t, {});
  t.deepEqual(hello.versions, [0x0304]);
  t.deepEqual(
    hello.suites.filter((suite) => suite !== SCSV),
    [AES_256, AES_128],
  );
  t.deepEqual(hello.alpn, ['h2']);
  for (const absent of [Tls.serverName, Tls.sessionTicket, Tls.preSharedKey, Tls.earlyData]) {
    t.false(hello.extensions.includes(absent), `extension ${absent}`);
  }
});

// spec: hbone.md §2
test('a client offers the hybrid group and the classic ones, with a key share for the first of either kind', async (t) => {
  const { groups, keyShares } = await helloOf(t, {});
  t.deepEqual(groups, [Tls.x25519MlKem768, Tls.x25519, Tls.p256, Tls.p384]);
  t.deepEqual(keyShares, [Tls.x25519MlKem768, Tls.x25519]);
});

// spec: hbone.md §2
test('TLS12_ENABLED adds TLS 1.2 with its four suites', async (t) => {
  const hello = await helloOf(t, { tls12: true });
  t.deepEqual(hello.versions, [0x0304, 0x0303]);
  t.deepEqual(
    hello.suites.filter((suite) => suite !== SCSV),
    [AES_256, AES_128, ...TLS12_SUITES],
  );
  const { attempt } = await server(t, { tls12: true });
  const socket = await attempt({ maxVersion: 'TLSv1.2' });
  t.is(socket.getProtocol(), 'TLSv1.2');
  t.is(socket.getCipher().name, 'ECDHE-ECDSA-AES256-GCM-SHA384');
});

// spec: hbone.md §2
test('a server takes TLS 1.3 only, and of its suites only those without ChaCha20', async (t) => {
  const { attempt } = await server(t);
  await t.throwsAsync(attempt({ maxVersion: 'TLSv1.2' }));
  await t.throwsAsync(attempt({ ciphers: 'TLS_CHACHA20_POLY1305_SHA256' }));
  for (const ciphers of ['TLS_AES_256_GCM_SHA384', 'TLS_AES_128_GCM_SHA256']) {
    t.is((await attempt({ ciphers })).getCipher().name, ciphers);
  }
});

// spec: hbone.md §2
test('a server that allows TLS 1.2 takes no suite without forward secrecy or GCM', async (t) => {
  const { attempt } = await server(t, { tls12: true });
  for (const ciphers of [
    'AES256-GCM-SHA384',
    'ECDHE-ECDSA-AES256-SHA',
    'ECDHE-ECDSA-CHACHA20-POLY1305',
  ]) {
    await t.throwsAsync(attempt({ maxVersion: 'TLSv1.2', ciphers }), undefined, ciphers);
  }
});

// spec: hbone.md §2
test('classic and hybrid clients are both served without another round trip', async (t) => {
  const { attempt } = await server(t);
  for (const ecdhCurve of ['X25519', 'P-256', 'P-384', 'X25519MLKEM768']) {
    const socket = await attempt({ ecdhCurve });
    t.is(socket.getProtocol(), 'TLSv1.3', ecdhCurve);
  }
  await t.throwsAsync(attempt({ ecdhCurve: 'P-521' }));
});

// spec: hbone.md §2
test('COMPLIANCE_POLICY=pqc offers and takes X25519MLKEM768 and nothing else', async (t) => {
  const { groups, keyShares, versions } = await helloOf(t, { compliance: 'pqc' });
  t.deepEqual(groups, [Tls.x25519MlKem768]);
  t.deepEqual(keyShares, [Tls.x25519MlKem768]);
  t.deepEqual(versions, [0x0304]);
  const { attempt, fixture, pki } = await server(t, { compliance: 'pqc' });
  await t.throwsAsync(attempt({ ecdhCurve: 'X25519:P-256:P-384' }));
  const own = credentials(await pki.issue(CLIENT), { compliance: 'pqc' });
  const tunnel = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(own));
  t.is((await roundTrip(await tunnel.open(request), 'hybrid')).toString(), 'hybrid');
});

// spec: hbone.md §2
test('whatever ticket a client shows, the server resumes nothing', async (t) => {
  const { attempt, fixture } = await server(t);
  const tickets: Buffer[] = [];
  const socket = await attempt({});
  socket.on('session', (ticket) => tickets.push(ticket));
  // OpenSSL sends tickets for sessions that the server does not keep; SETTINGS follow them.
  await once(socket, 'data');
  await until(() => fixture.tunnels.length === 1, { what: 'the tunnel' });
  for (const session of tickets) t.false((await attempt({ session })).isSessionReused());
});

// spec: hbone.md §2
test('connections to the control plane and the CA keep the same rules', async (t) => {
  const pki = await createTunnelPki();
  for (const [policy, groups, versions] of [
    [undefined, [Tls.x25519MlKem768, Tls.x25519, Tls.p256, Tls.p384], [0x0304]],
    [{ tls12: false, compliance: 'pqc' }, [Tls.x25519MlKem768], [0x0304]],
    [
      { tls12: true, compliance: null },
      [Tls.x25519MlKem768, Tls.x25519, Tls.p256, Tls.p384],
      [0x0304, 0x0303],
    ],
  ] as const) {
    const { port, hello } = await heard(t);
    const options = {
      address: `https://localhost:${port}`,
      rootCa: pki.rootPem,
      altHostname: null,
      authToken: 'token',
      clusterId: 'Kubernetes',
      headers: {},
      maxReceiveBytes: 1_000,
      ...(policy === undefined ? {} : { tls: policy }),
    };
    const client = openGrpcClient(options);
    t.teardown(() => client.close());
    // Begins to connect. A wait with a deadline would keep this process until then.
    client.getChannel().getConnectivityState(true);
    const offered = await hello;
    t.deepEqual(offered.groups, groups);
    t.deepEqual(offered.versions, versions);
    t.deepEqual(offered.alpn, ['h2']);
    t.false(offered.extensions.includes(Tls.preSharedKey));
  }
});

test('a socket of a gRPC client and then its TLS socket may be destroyed as soon as they are handed out', async (t) => {
  const pki = await createTunnelPki();
  const listening = createTlsServer(
    { ...(await pki.issueLocal()), ALPNProtocols: ['h2'] },
    (socket) => socket.on('error', () => {}).resume(),
  );
  listening.on('tlsClientError', () => {});
  listening.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  t.teardown(() => listening.close());
  const connector = new RootsCredentials({
    roots: { kind: 'pem', pem: pki.rootPem },
    host: '127.0.0.1',
    altHostname: null,
    tls: DEFAULT_TLS_POLICY,
  })._createSecureConnector(null, null);
  for (let round = 0; round < 5; round += 1) {
    const socket = await dial(t, (listening.address() as AddressInfo).port);
    const made = await connector.connect(socket).then((result) => {
      socket.destroy();
      result.socket.destroy();
      return result;
    });
    t.true(made.secure);
  }
});

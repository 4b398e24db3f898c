/** Part of the engine contract: which peers the handshake accepts and which it refuses. */
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { TestFn } from 'ava';
import type { HboneEngine, ServerTunnel } from '../../lib/hbone/engine.ts';
import { dial, echo, openTunnel, request, roundTrip, serveTunnels } from '../support/tunnel-kit.ts';
import { tunnelOptions } from '../support/tunnel-kit.ts';
import { CLIENT, SERVER, createTunnelPki, credentials, identities } from '../support/tunnel-pki.ts';
import { rawClient } from '../support/raw-tls.ts';
import { until } from '../support/until.ts';

export function handshakes(test: TestFn, engine: HboneEngine): void {
  // spec: hbone.md §2, spec: hbone.md §3
  test('a chain with an intermediate is accepted on both sides', async (t) => {
    const pki = await createTunnelPki();
    const server = credentials(await pki.issue(SERVER, { intermediate: true }));
    const client = credentials(await pki.issue(CLIENT, { intermediate: true }));
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    t.is((await roundTrip(await tunnel.open(request), 'x')).toString(), 'x');
  });

  test('a socket and then its tunnel may be destroyed as soon as the tunnel is made', async (t) => {
    const { client, server } = await identities();
    const accepted: ServerTunnel[] = [];
    let refused = 0;
    let left = false;
    const listening = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) => {
      const options = { ...tunnelOptions(server), onRequest: echo, onRequestError: () => {} };
      engine.serve(socket, options).then(
        (tunnel) => {
          socket.destroy();
          tunnel.destroy();
          accepted.push(tunnel);
        },
        (error: unknown) => {
          // The client left before the server had verified it to the end.
          if (!left) t.fail(String(error));
          t.like(error, { code: 'TLS_HANDSHAKE' });
          refused += 1;
        },
      );
    });
    listening.listen(0, '127.0.0.1');
    await once(listening, 'listening');
    t.teardown(() => listening.close());
    const { port } = listening.address() as AddressInfo;
    const socket = await dial(t, port);
    const tunnel = await engine.connect(socket, tunnelOptions(client)).then((made) => {
      left = true;
      socket.destroy();
      made.destroy();
      return made;
    });
    await Promise.all([
      tunnel.closed,
      until(() => accepted.length + refused === 1, { what: 'its end' }),
    ]);
    await accepted[0]?.closed;
    t.false(tunnel.usable);
  });

  // spec: hbone.md §3
  test('a server of a foreign authority is refused', async (t) => {
    const { client } = await identities();
    const { server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    await t.throwsAsync(openTunnel(t, engine, fixture.port, tunnelOptions(client)), {
      code: 'TLS_HANDSHAKE',
    });
  });

  // spec: hbone.md §3
  test('a client of a foreign authority is refused and nothing is asked of the server', async (t) => {
    const pki = await createTunnelPki();
    const foreign = await createTunnelPki('foreign');
    const server = credentials(await pki.issue(SERVER));
    const client = credentials(await foreign.issue(CLIENT, { rootsPem: pki.rootPem }));
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), () =>
      Promise.resolve(t.fail('a request was served')),
    );
    await t.throwsAsync(async () => {
      const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
      await tunnel.open(request);
    });
    await until(() => fixture.failures.length === 1, { timeoutMs: 5_000, what: 'the refusal' });
    t.is(fixture.failures[0]?.code, 'TLS_HANDSHAKE');
  });

  // spec: hbone.md §3
  test('a client with an expired certificate is refused', async (t) => {
    const pki = await createTunnelPki();
    const server = credentials(await pki.issue(SERVER));
    const expired = await pki.issue(CLIENT, { lifeMs: -60_000 });
    // The client would refuse to use an expired certificate; hide the expiry from it.
    const client = credentials({ ...expired, notAfterMs: Date.now() + 60_000 });
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    await t.throwsAsync(async () => {
      const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
      await tunnel.open(request);
    });
    await until(() => fixture.failures.length === 1, { timeoutMs: 5_000, what: 'the refusal' });
  });

  test('an own certificate that has expired is not used', async (t) => {
    const pki = await createTunnelPki();
    const server = credentials(await pki.issue(SERVER));
    const client = credentials(await pki.issue(CLIENT, { lifeMs: -60_000 }));
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    await t.throwsAsync(openTunnel(t, engine, fixture.port, tunnelOptions(client)), {
      code: 'IDENTITY_EXPIRED',
    });
  });

  // spec: hbone.md §3
  test('verifyPeer decides on both sides', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(
      t,
      engine,
      { ...tunnelOptions(server), verifyPeer: refuse },
      echo,
    );
    await t.throwsAsync(async () => {
      const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
      await tunnel.open(request);
    });
    await until(() => fixture.failures.length === 1, { timeoutMs: 5_000, what: 'the refusal' });
    const open = await serveTunnels(t, engine, tunnelOptions(server), echo);
    await t.throwsAsync(
      openTunnel(t, engine, open.port, { ...tunnelOptions(client), verifyPeer: refuse }),
    );
  });

  // spec: hbone.md §2, spec: hbone.md §3, spec: dataplane.md §7.1
  test('a client without a certificate gets nowhere, nor does it by resuming a session', async (t) => {
    const pki = await createTunnelPki();
    const server = credentials(await pki.issue(SERVER));
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), () =>
      Promise.resolve(t.fail('a request was served')),
    );
    let session: Buffer | undefined;
    for (let round = 0; round < 3; round += 1) {
      const socket = connectTls({
        socket: await dial(t, fixture.port),
        ca: pki.rootPem,
        ALPNProtocols: ['h2'],
        checkServerIdentity: () => undefined,
        ...(session === undefined ? {} : { session }),
      });
      socket.on('error', () => {});
      socket.on('session', (ticket) => {
        session = ticket;
      });
      let reused: boolean | null = null;
      socket.once('secureConnect', () => {
        reused = socket.isSessionReused();
      });
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.resume();
      await closed;
      t.not(reused, true);
    }
    await until(() => fixture.failures.length === 3, { what: 'the refusals' });
    t.is(fixture.tunnels.length, 0);
  });

  // spec: hbone.md §2
  test('a session of an honest client is not resumable', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tickets: Buffer[] = [];
    const socket = await rawClient(t, fixture.port, client, tickets);
    const session = connectHttp2('https://x', { createConnection: () => socket });
    session.on('error', () => {});
    await once(session, 'remoteSettings');
    session.destroy();
    const again = await rawClient(t, fixture.port, client, tickets);
    t.false(again.isSessionReused());
    again.destroy();
  });

  // spec: hbone.md §1
  test.serial('garbage, HTTP/1 and silence after TLS end in a closed connection', async (t) => {
    const { client, server } = await identities();
    const options = tunnelOptions(server, { handshakeTimeoutMs: 4_000 });
    const fixture = await serveTunnels(t, engine, options, echo);
    for (const text of ['GET / HTTP/1.1\r\nhost: x\r\n\r\n', '\0'.repeat(64), '']) {
      const socket = await rawClient(t, fixture.port, client);
      const closed = once(socket, 'close');
      socket.resume();
      if (text !== '') socket.write(text);
      await closed;
    }
    const plain = await dial(t, fixture.port);
    const closed = once(plain, 'close');
    plain.resume();
    plain.write('GET / HTTP/1.1\r\n\r\n');
    await closed;
    await until(() => fixture.failures.length === 1, { timeoutMs: 5_000, what: 'the refusal' });
    t.is(fixture.failures[0]?.code, 'TLS_HANDSHAKE');
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    t.is((await roundTrip(await tunnel.open(request), 'alive')).toString(), 'alive');
  });

  // spec: hbone.md §2, spec: hbone.md §11
  test('a client offering no ALPN is served, one offering only another protocol is not', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const none = await rawClient(t, fixture.port, client, [], []);
    const session = connectHttp2('https://x', { createConnection: () => none });
    session.on('error', () => {});
    await once(session, 'remoteSettings');
    session.destroy();
    await t.throwsAsync(rawClient(t, fixture.port, client, [], ['http/1.1']));
  });

  test('a peer that never starts TLS is dropped', async (t) => {
    const pki = await createTunnelPki();
    const { TunnelCredentials: Made } = await import('../../lib/hbone/credentials.ts');
    const server = new Made(await pki.issue(SERVER), {
      tls12: false,
      compliance: null,
      handshakeTimeoutMs: 300,
    });
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const socket = await dial(t, fixture.port);
    socket.resume();
    await once(socket, 'close');
    await until(() => fixture.failures.length === 1, { timeoutMs: 5_000, what: 'the failure' });
    t.is(fixture.failures[0]?.code, 'TLS_HANDSHAKE');
  });
}

function refuse(): string {
  throw new Error('not this one');
}

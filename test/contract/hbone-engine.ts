/** What every HBONE engine must do. Each engine has a test file that calls {@link engineContract}. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect as connectHttp2, constants as h2 } from 'node:http2';
import { connect as connectTls } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import type { TestFn } from 'ava';
import type { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import type { HboneEngine, IncomingRequest, TunnelStream } from '../../lib/hbone/engine.ts';
import {
  dial,
  echo,
  openTunnel,
  readAll,
  request,
  roundTrip,
  serveTunnels,
} from '../support/tunnel-kit.ts';
import { peerTrustContract } from './peer-trust.ts';
import { KIB, MIB, tunnelOptions } from '../support/tunnel-kit.ts';
import { CLIENT, SERVER, createTunnelPki, credentials, identities } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';
import { nested } from './hbone-nested.ts';

export function engineContract(test: TestFn, engine: HboneEngine): void {
  streams(test, engine);
  ends(test, engine);
  handshakes(test, engine);
  lifetimes(test, engine);
  peerTrustContract(test, engine);
  nested(test, engine);
}

function streams(test: TestFn, engine: HboneEngine): void {
  // spec: hbone.md §1, spec: hbone.md §3
  test('carries bytes both ways and knows both identities', async (t) => {
    const { client, server } = await identities();
    const seen: IncomingRequest[] = [];
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      seen.push(incoming);
      return echo(incoming);
    });
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const stream = await tunnel.open({ ...request, headers: { baggage: 'a=b', traceparent: 'x' } });
    const bytes = randomBytes(3 * MIB);
    t.true((await roundTrip(stream, bytes)).equals(bytes));
    t.is(tunnel.peer.identity, SERVER);
    t.is(fixture.tunnels[0]?.peer.identity, CLIENT);
    t.is(seen[0]?.method, 'CONNECT');
    t.is(seen[0]?.authority, request.authority);
    t.is(seen[0]?.headers['baggage'], 'a=b');
    await until(() => tunnel.streams === 0, {
      timeoutMs: 5_000,
      what: 'the stream to be counted out',
    });
  });

  test('a server may speak first', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      incoming.accept({})?.duplex.write('hello');
      return Promise.resolve();
    });
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const stream = await tunnel.open(request);
    const [first] = (await once(stream.duplex, 'data')) as [Buffer];
    t.is(first.toString(), 'hello');
  });

  test('64 streams at once keep their bytes apart', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const results = await Promise.all(
      Array.from({ length: 64 }, async () => {
        const bytes = randomBytes(200 * KIB);
        const stream = await tunnel.open(request);
        return (await roundTrip(stream, bytes)).equals(bytes);
      }),
    );
    t.true(results.every(Boolean));
    t.is(tunnel.counters.opened, 64);
  });

  test('a stalled reader holds back its sender within the window and no other stream', async (t) => {
    const { client, server } = await identities();
    const stalled: TunnelStream[] = [];
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      if (incoming.authority !== 'stall:1') return echo(incoming);
      const stream = incoming.accept({});
      if (stream !== null) stalled.push(stream);
      return Promise.resolve();
    });
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const slow = await tunnel.open({ ...request, authority: 'stall:1' });
    const chunk = Buffer.alloc(64 * KIB, 7);
    let sent = 0;
    const pump = (): void => {
      while (sent < 64 * MIB && slow.duplex.write(chunk)) sent += chunk.length;
      sent += chunk.length;
    };
    slow.duplex.on('drain', pump);
    pump();
    let last = -1;
    let unchanged = 0;
    await until(
      () => {
        unchanged = sent === last ? unchanged + 1 : 0;
        last = sent;
        return sent > MIB && unchanged > 20;
      },
      { timeoutMs: 20_000, what: 'the sender to be held back' },
    );
    t.true(sent <= 4 * MIB + 512 * KIB, `${sent} bytes left the sender`);
    const quick = await tunnel.open(request);
    const bytes = randomBytes(8 * MIB);
    t.true((await roundTrip(quick, bytes)).equals(bytes));
    slow.duplex.off('drain', pump);
    slow.duplex.end();
    const reader = stalled[0];
    t.truthy(reader);
    if (reader !== undefined) t.is((await readAll(reader.duplex)).length, sent);
  });
}

function ends(test: TestFn, engine: HboneEngine): void {
  // spec: hbone.md §8
  test('half-close passes in each direction alone', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), async (incoming) => {
      const stream = incoming.accept({});
      if (stream === null) return;
      const got = await readAll(stream.duplex);
      stream.duplex.write(`got ${got.length}`);
      stream.duplex.end(' bytes');
    });
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    t.is((await roundTrip(await tunnel.open(request), 'abc')).toString(), 'got 3 bytes');
  });

  // spec: hbone.md §8
  test('the server may end first and still read', async (t) => {
    const { client, server } = await identities();
    let received: Promise<Buffer> | null = null;
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      const stream = incoming.accept({});
      stream?.duplex.end('bye');
      if (stream !== null) received = readAll(stream.duplex);
      return Promise.resolve();
    });
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const stream = await tunnel.open(request);
    t.is((await readAll(stream.duplex)).toString(), 'bye');
    const bytes = randomBytes(MIB);
    stream.duplex.end(bytes);
    t.true((await (received ?? Promise.resolve(Buffer.alloc(0)))).equals(bytes));
  });

  // spec: hbone.md §8
  test('a reset ends both directions of its stream and no other', async (t) => {
    const { client, server } = await identities();
    const accepted: TunnelStream[] = [];
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      const stream = incoming.accept({});
      if (stream !== null) accepted.push(stream);
      return Promise.resolve();
    });
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const [one, two] = await Promise.all([tunnel.open(request), tunnel.open(request)]);
    const gone = once(one.duplex, 'close');
    accepted[0]?.reset();
    await gone;
    accepted[1]?.duplex.end('still here');
    t.is((await readAll(two.duplex)).toString(), 'still here');
    t.true(tunnel.usable);
  });

  for (const status of [400, 401, 503] as const) {
    // spec: hbone.md §7
    test(`a refusal with ${status} reaches the client, the tunnel stays`, async (t) => {
      const { client, server } = await identities();
      const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
        incoming.refuse(status);
        return Promise.resolve();
      });
      const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
      await t.throwsAsync(tunnel.open(request), { code: 'TUNNEL_REFUSED' });
      const error = await t.throwsAsync(tunnel.open(request));
      t.is((error as unknown as { detail: { status: number } }).detail.status, status);
      t.true(tunnel.usable);
    });
  }

  test('a refused stream says that it is safe to ask again elsewhere', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      incoming.reset('refused');
      return Promise.resolve();
    });
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    await t.throwsAsync(tunnel.open(request), { code: 'TUNNEL_CLOSED' });
  });

  test('a failing handler costs its stream alone', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), () =>
      Promise.reject(new Error('broken')),
    );
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    await t.throwsAsync(tunnel.open(request), { code: 'TUNNEL_REFUSED' });
    t.is(fixture.requestErrors.length, 1);
    t.true(tunnel.usable);
  });

  test('thousands of resets do not cost the tunnel', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    for (let round = 0; round < 60; round += 1) {
      const opened = await Promise.all(Array.from({ length: 50 }, () => tunnel.open(request)));
      for (const stream of opened) stream.reset();
      await until(() => tunnel.streams === 0, {
        timeoutMs: 10_000,
        what: 'the reset streams to end',
      });
    }
    t.is(tunnel.counters.resetSent, 3_000);
    t.is((await roundTrip(await tunnel.open(request), 'fine')).toString(), 'fine');
  });

  test('requests reset before they are decided are bounded', async (t) => {
    const { client, server } = await identities();
    let undecided = 0;
    let most = 0;
    const release: (() => void)[] = [];
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), async () => {
      undecided += 1;
      most = Math.max(most, undecided);
      await new Promise<void>((resolve) => release.push(resolve));
      undecided -= 1;
    });
    const raw = await rawClient(t, fixture.port, client);
    const session = connectHttp2('https://x', { createConnection: () => raw });
    session.on('error', () => {});
    t.teardown(() => session.destroy());
    await once(session, 'remoteSettings');
    for (let round = 0; round < 20; round += 1) {
      const batch = Array.from({ length: 100 }, () => {
        const stream = session.request({ ':method': 'CONNECT', ':authority': 'a:1' });
        stream.on('error', () => {});
        return stream;
      });
      const closed = Promise.all(batch.map((stream) => once(stream, 'close')));
      for (const stream of batch) stream.close(h2.NGHTTP2_CANCEL);
      await closed;
      await new Promise((resolve) => session.ping(resolve));
    }
    t.true(most >= 100 && most <= 400, `${most} requests were undecided at once`);
    for (const done of release) done();
  });

  test('a peer that keeps giving up its requests loses its tunnel, and only that', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      if (incoming.authority !== 'abandoned:1') return echo(incoming);
      return new Promise((resolve) => incoming.onAborted(() => resolve()));
    });
    const honest = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const raw = await rawClient(t, fixture.port, client);
    const session = connectHttp2('https://x', { createConnection: () => raw });
    session.on('error', () => {});
    t.teardown(() => session.destroy());
    await once(session, 'remoteSettings');
    const ended = fixture.tunnels[1]?.closed;
    let sent = 0;
    while (!session.destroyed && !session.closed && sent < 20_000) {
      const batch = Array.from({ length: 100 }, () => {
        const stream = session.request({ ':method': 'CONNECT', ':authority': 'abandoned:1' });
        stream.on('error', () => {});
        return stream;
      });
      sent += batch.length;
      for (const stream of batch) stream.close(h2.NGHTTP2_CANCEL);
      await new Promise((resolve) => setImmediate(resolve));
    }
    t.is(await ended, 'too-many-resets');
    t.is((await roundTrip(await honest.open(request), 'fine')).toString(), 'fine');
  });
}

function handshakes(test: TestFn, engine: HboneEngine): void {
  // spec: hbone.md §2, spec: hbone.md §3
  test('a chain with an intermediate is accepted on both sides', async (t) => {
    const pki = await createTunnelPki();
    const server = credentials(await pki.issue(SERVER, { intermediate: true }));
    const client = credentials(await pki.issue(CLIENT, { intermediate: true }));
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    t.is((await roundTrip(await tunnel.open(request), 'x')).toString(), 'x');
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
    // The client would refuse to use it; pretend it does not know.
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

  // spec: hbone.md §2, spec: hbone.md §3
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

function lifetimes(test: TestFn, engine: HboneEngine): void {
  // spec: hbone.md §8
  test('a draining server finishes its streams and takes no new ones', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const stream = await tunnel.open(request);
    fixture.tunnels[0]?.drain();
    await until(() => !tunnel.usable, { timeoutMs: 5_000, what: 'the GOAWAY' });
    await t.throwsAsync(tunnel.open(request), { code: 'TUNNEL_CLOSED' });
    t.is(tunnel.capacity, 0);
    const bytes = randomBytes(MIB);
    t.true((await roundTrip(stream, bytes)).equals(bytes));
    await tunnel.closed;
    t.is(await fixture.tunnels[0]?.closed, 'drained');
  });

  test('an idle tunnel that drains closes', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    await roundTrip(await tunnel.open(request), 'x');
    tunnel.drain();
    t.is(await tunnel.closed, 'drained');
    await fixture.tunnels[0]?.closed;
  });

  test('a destroyed tunnel resets its streams', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const stream = await tunnel.open(request);
    const gone = once(stream.duplex, 'close');
    fixture.tunnels[0]?.destroy();
    await gone;
    await tunnel.closed;
    t.is(await fixture.tunnels[0]?.closed, 'destroyed');
  });

  // By itself, so that time passes for nobody else's sake.
  test.serial(
    'a tunnel drains when its certificate expires, and what it carries goes on',
    async (t) => {
      const pki = await createTunnelPki();
      const server = credentials(await pki.issue(SERVER));
      const client = credentials(await pki.issue(CLIENT, { lifeMs: 10_000 }));
      const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
      const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
      const stream = await tunnel.open(request);
      await until(() => !tunnel.usable, { timeoutMs: 30_000, what: 'the tunnel to retire' });
      t.is((await roundTrip(stream, 'carried')).toString(), 'carried');
      await tunnel.closed;
    },
  );

  // spec: hbone.md §8
  test.serial('both ends ping, and a peer that stops answering is dropped', async (t) => {
    const { client, server } = await identities();
    // A busy machine may keep an honest peer waiting; only silence lasts five seconds.
    const quick = { pingIntervalMs: 50, pingTimeoutMs: 5_000 };
    const fixture = await serveTunnels(t, engine, tunnelOptions(server, quick), echo);
    const socket = await dial(t, fixture.port);
    const tunnel = await engine.connect(socket, tunnelOptions(client, quick));
    t.teardown(() => tunnel.destroy());
    await until(
      () =>
        tunnel.counters.pingsAnswered >= 2 &&
        (fixture.tunnels[0]?.counters.pingsAnswered ?? 0) >= 2,
      { timeoutMs: 10_000, what: 'pings both ways' },
    );
    const silent = await rawClient(t, fixture.port, client);
    silent.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u0004\0\0\0\0\0');
    silent.resume();
    await until(() => fixture.tunnels.length === 2, { timeoutMs: 20_000, what: 'the silent peer' });
    t.is(await fixture.tunnels[1]?.closed, 'ping-timeout');
  });

  test('a probe finds a peer alive or ends the tunnel', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const stream = await tunnel.open(request);
    const probes = Array.from({ length: 20 }, () => tunnel.probe(20_000));
    t.deepEqual(new Set(await Promise.all(probes)), new Set([true]));
    t.is((await roundTrip(stream, 'carried')).toString(), 'carried');
    const silent = await rawClient(t, fixture.port, client);
    silent.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u0004\0\0\0\0\0');
    silent.resume();
    await until(() => fixture.tunnels.length === 2, { timeoutMs: 20_000, what: 'the silent peer' });
    const served = fixture.tunnels[1];
    t.is(await served?.probe(200), false);
    t.is(await served?.closed, 'ping-timeout');
    t.is(await served?.probe(200), false);
  });
}

/** A plain TLS client with the credentials, for peers that misbehave. */
async function rawClient(
  t: Parameters<typeof dial>[0],
  port: number,
  own: TunnelCredentials,
  tickets: Buffer[] = [],
  alpn: string[] = ['h2'],
): Promise<TLSSocket> {
  const ticket = tickets.at(-1);
  const socket = connectTls({
    socket: await dial(t, port),
    secureContext: own.clientContext,
    checkServerIdentity: () => undefined,
    ...(alpn.length === 0 ? {} : { ALPNProtocols: alpn }),
    ...(ticket === undefined ? {} : { session: ticket }),
  });
  socket.on('session', (session) => tickets.push(session));
  await once(socket, 'secureConnect');
  socket.on('error', () => {});
  return socket;
}

function refuse(): string {
  throw new Error('not this one');
}

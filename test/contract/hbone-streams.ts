/** Part of the engine contract: bytes, windows and ends of streams. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect as connectHttp2, constants as h2 } from 'node:http2';
import type { TestFn } from 'ava';
import type { HboneEngine, IncomingRequest, TunnelStream } from '../../lib/hbone/engine.ts';
import { MAX_AUTHORITY_LENGTH, MAX_BAGGAGE_LENGTH } from '../../lib/hbone/peer-text.ts';
import {
  closedBy,
  echo,
  openTunnel,
  readAll,
  request,
  roundTrip,
  serveTunnels,
} from '../support/tunnel-kit.ts';
import { KIB, MIB, tunnelOptions } from '../support/tunnel-kit.ts';
import { CLIENT, SERVER, identities } from '../support/tunnel-pki.ts';
import { rawClient } from '../support/raw-tls.ts';
import { until } from '../support/until.ts';

export function streams(test: TestFn, engine: HboneEngine): void {
  // spec: hbone.md §1, spec: hbone.md §3
  test('carries bytes both ways and knows both identities', async (t) => {
    const { client, server } = await identities();
    const seen: Pick<IncomingRequest, 'method' | 'authority' | 'headers'>[] = [];
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      const { method, authority, headers } = incoming;
      seen.push({ method, authority, headers });
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

  test('what a peer writes is cut where it enters, and what is answered keeps none of it', async (t) => {
    const { client, server } = await identities();
    const long = 'x'.repeat(10_000);
    const seen: [IncomingRequest, IncomingRequest['headers'], TunnelStream | null][] = [];
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), (incoming) => {
      const { headers } = incoming;
      seen.push([
        incoming,
        headers,
        incoming.accept({ baggage: long.slice(0, 9_000), other: 'y' }),
      ]);
      return Promise.resolve();
    });
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const stream = await tunnel.open({
      authority: `${long}:80`,
      headers: { baggage: long, forwarded: 'host=a', other: 'y' },
    });
    t.deepEqual(stream.headers, { baggage: long.slice(0, MAX_BAGGAGE_LENGTH + 1) });
    const [first] = seen;
    assert(first !== undefined);
    const [incoming, headers, accepted] = first;
    t.is(incoming.authority, long.slice(0, MAX_AUTHORITY_LENGTH + 1));
    t.deepEqual(headers, { baggage: long.slice(0, MAX_BAGGAGE_LENGTH + 1), forwarded: 'host=a' });
    t.deepEqual(incoming.headers, {});
    t.deepEqual(accepted?.headers, {});
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

export function ends(test: TestFn, engine: HboneEngine): void {
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
    const gone = closedBy(one.duplex);
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

import test from 'ava';
import type { ExecutionContext } from 'ava';
import { Backoff } from '../../lib/clock/backoff.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { http2Engine } from '../support/engine-http2/engine.ts';
import type {
  ClientTunnel,
  IncomingRequest,
  TunnelSettings,
  TunnelStream,
} from '../../lib/hbone/engine.ts';
import { TunnelPool } from '../../lib/hbone/pool.ts';
import type { PoolOptions, TunnelKey } from '../../lib/hbone/pool.ts';
import { connectWithRetry } from '../../lib/hbone/retry.ts';
import {
  closedBy,
  dial,
  echo,
  request,
  roundTrip,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import type { ServerFixture } from '../support/tunnel-kit.ts';
import { CLIENT, createTunnelPki, credentials } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

/** A port that refuses connections. */
const NOBODY = 1;

interface Fixture {
  readonly pool: TunnelPool;
  readonly server: ServerFixture;
  readonly key: TunnelKey;
  readonly connects: TunnelKey[];
}

async function fixture(
  t: ExecutionContext,
  options: Partial<PoolOptions> & { settings?: Partial<TunnelSettings>; lifeMs?: number } = {},
  onRequest: (incoming: IncomingRequest) => Promise<void> = echo,
): Promise<Fixture> {
  const pki = await createTunnelPki();
  const own = credentials(
    await pki.issue(CLIENT, options.lifeMs === undefined ? {} : { lifeMs: options.lifeMs }),
  );
  const server = await serveTunnels(
    t,
    http2Engine,
    tunnelOptions(credentials(await pki.issue('spiffe://cluster.local/ns/demo/sa/web'))),
    onRequest,
  );
  const connects: TunnelKey[] = [];
  const pool = new TunnelPool(
    // Long, so that a busy machine does not look like a full pool.
    { idleReleaseMs: 60_000, waitMs: 120_000, ...options },
    {
      clock: systemClock,
      connect: async (key) => {
        connects.push(key);
        if (key.destinationPort === NOBODY) throw new MeshError('UPSTREAM_CONNECT', 'refused');
        const socket = await dial(t, key.destinationPort);
        return http2Engine.connect(socket, tunnelOptions(own, options.settings));
      },
    },
  );
  t.teardown(() => pool.close());
  return { pool, server, key: keyTo(server.port), connects };
}

function keyTo(port: number): TunnelKey {
  return {
    sourceIdentity: CLIENT,
    expectedIdentities: ['spiffe://cluster.local/ns/demo/sa/web'],
    destinationIp: '127.0.0.1',
    destinationPort: port,
    sourceIp: '127.0.0.1',
  };
}

// spec: hbone.md §9
test('connections to one peer share a tunnel, opened once however many ask at once', async (t) => {
  const { pool, key, server } = await fixture(t);
  const streams = await Promise.all(Array.from({ length: 50 }, () => pool.open(key, request)));
  t.is(server.tunnels.length, 1);
  for (const stream of streams) t.is((await roundTrip(stream, 'x')).toString(), 'x');
  await until(() => pool.stats.idle === 1, { what: 'the tunnel to be idle' });
});

// spec: hbone.md §9
test('another source address, identity, expectation or destination gets a tunnel of its own', async (t) => {
  const { pool, key, server } = await fixture(t);
  const [expected = ''] = key.expectedIdentities;
  const others: readonly TunnelKey[] = [
    { ...key, sourceIp: '127.0.0.2' },
    { ...key, sourceIdentity: 'spiffe://cluster.local/ns/demo/sa/other' },
    { ...key, expectedIdentities: [expected, 'spiffe://cluster.local/ns/demo/sa/other'] },
    { ...key, expectedIdentities: [] },
    { ...key, destinationIp: '127.0.0.3' },
  ];
  for (const one of [key, ...others, ...others, key]) await pool.open(one, request);
  t.is(server.tunnels.length, 6);
  t.is(pool.stats.keys, 6);
});

// spec: hbone.md §9
test('a full tunnel is joined by a second and is used again when its streams end', async (t) => {
  const { pool, key, connects } = await fixture(t, { settings: { maxStreams: 4 } });
  const streams = await Promise.all(Array.from({ length: 10 }, () => pool.open(key, request)));
  t.is(connects.length, 3);
  await Promise.all(streams.map((stream) => roundTrip(stream, 'x')));
  await until(() => pool.stats.idle === 3, { what: 'all to be idle' });
  await Promise.all(Array.from({ length: 12 }, () => pool.open(key, request)));
  t.is(connects.length, 3);
});

test('at the limit of tunnels a request waits for a stream to end', async (t) => {
  const { pool, key, connects } = await fixture(t, {
    settings: { maxStreams: 1 },
    maxStreamsPerKey: 2,
  });
  const [one] = await Promise.all([pool.open(key, request), pool.open(key, request)]);
  let third: TunnelStream | null = null;
  const waiting = pool.open(key, request).then((stream) => {
    third = stream;
  });
  await new Promise((resolve) => setImmediate(resolve));
  t.is(third, null);
  await roundTrip(one, 'x');
  await waiting;
  t.truthy(third);
  t.is(connects.length, 2);
});

test('pools that share a limit have a part of it each, and never nothing', async (t) => {
  const { pool, key, connects } = await fixture(t, {
    settings: { maxStreams: 1 },
    maxStreamsPerKey: 4,
  });
  pool.divide(2);
  const [one] = await Promise.all([pool.open(key, request), pool.open(key, request)]);
  const waiting = pool.open(key, request);
  await new Promise((resolve) => setImmediate(resolve));
  t.is(connects.length, 2);
  pool.divide(100);
  await roundTrip(one, 'x');
  await waiting;
  t.is(connects.length, 2);
});

// spec: hbone.md §9
test('a peer that cannot be reached fails all who wait, and only them', async (t) => {
  const { pool, key } = await fixture(t);
  const results = await Promise.allSettled([
    pool.open(keyTo(NOBODY), request),
    pool.open(keyTo(NOBODY), request),
    pool.open(key, request),
  ]);
  t.deepEqual(
    results.map((result) => result.status),
    ['rejected', 'rejected', 'fulfilled'],
  );
  t.is(pool.stats.keys, 1);
});

// spec: hbone.md §9
test('an idle tunnel is released after its time', async (t) => {
  const { pool, key, server } = await fixture(t, { idleReleaseMs: 100 });
  await roundTrip(await pool.open(key, request), 'x');
  await until(() => pool.stats.keys === 0, { what: 'the tunnel to be released' });
  t.is(await server.tunnels[0]?.closed, 'peer-closed');
});

// spec: hbone.md §9
test('idle tunnels are bounded, the least recently used goes first', async (t) => {
  const { pool, key } = await fixture(t, { maxIdleTunnels: 2 });
  for (const sourceIp of ['a', 'b', 'c']) {
    await roundTrip(await pool.open({ ...key, sourceIp }, request), 'x');
    await until(() => pool.stats.idle > 0 && pool.stats.idle <= 2, { what: 'idle' });
  }
  await until(() => pool.stats.tunnels === 2 && pool.stats.idle === 2, {
    what: 'the first to go',
  });
  t.is(pool.stats.keys, 2);
});

test.serial('a tunnel whose certificate expires is replaced', async (t) => {
  const { pool, key, connects } = await fixture(t, { lifeMs: 15_000 });
  const carried = await pool.open(key, request);
  await until(() => pool.stats.tunnels === 0, {
    timeoutMs: 30_000,
    what: 'the tunnel to retire',
  });
  t.is((await roundTrip(carried, 'x')).toString(), 'x');
  await t.throwsAsync(pool.open(key, request), { code: 'IDENTITY_EXPIRED' });
  t.is(connects.length, 2);
});

test('a refused stream is asked again on the policy of retries', async (t) => {
  let refusals = 2;
  const { pool, key } = await fixture(t, {}, (incoming) => {
    if (refusals === 0) return echo(incoming);
    refusals -= 1;
    incoming.reset('refused');
    return Promise.resolve();
  });
  const deps = { clock: systemClock, backoff: new Backoff({ baseMs: 1, maxMs: 5 }) };
  const policy = { attempts: 3, totalMs: 90_000 };
  const stream = await connectWithRetry(() => pool.open(key, request), policy, deps);
  t.is((await roundTrip(stream, 'x')).toString(), 'x');
});

test('a request that meets a GOAWAY is sent again on a fresh tunnel', async (t) => {
  const { pool, key, server } = await fixture(t);
  const carried = await pool.open(key, request);
  server.tunnels[0]?.drain();
  const deps = { clock: systemClock, backoff: new Backoff({ baseMs: 1, maxMs: 5 }) };
  const policy = { attempts: 3, totalMs: 90_000 };
  const stream = await connectWithRetry(() => pool.open(key, request), policy, deps);
  t.is((await roundTrip(stream, 'x')).toString(), 'x');
  t.is((await roundTrip(carried, 'y')).toString(), 'y');
  t.is(server.tunnels.length, 2);
});

test('a tunnel that ends before the answer is asked once: the application may have been reached', async (t) => {
  let asked = 0;
  const { pool, key, server } = await fixture(t, {}, () => {
    asked += 1;
    return new Promise(() => {});
  });
  const deps = { clock: systemClock, backoff: new Backoff({ baseMs: 1, maxMs: 5 }) };
  const policy = { attempts: 3, totalMs: 10_000 };
  const failed = t.throwsAsync(
    connectWithRetry(
      (attempt) => pool.open(key, { ...request, onTunnel: () => (attempt.asked = true) }),
      policy,
      deps,
    ),
    { code: 'TUNNEL_RESET', message: /ended before the peer answered/ },
  );
  await until(() => asked === 1, { what: 'the request' });
  server.tunnels[0]?.destroy();
  await failed;
  t.is(asked, 1);
});

for (const status of [400, 401, 503] as const) {
  test(`status ${status} is asked for once`, async (t) => {
    let asked = 0;
    const { pool, key } = await fixture(t, {}, (incoming) => {
      asked += 1;
      incoming.refuse(status);
      return Promise.resolve();
    });
    const deps = { clock: systemClock, backoff: new Backoff({ baseMs: 1, maxMs: 5 }) };
    const policy = { attempts: 3, totalMs: 90_000 };
    await t.throwsAsync(
      connectWithRetry(
        (attempt) => {
          attempt.asked = true;
          return pool.open(key, request);
        },
        policy,
        deps,
      ),
      {
        code: 'TUNNEL_REFUSED',
      },
    );
    t.is(asked, 1);
  });
}

test('a request that failed on a tunnel gets a fresh one, at the limit of tunnels the same', async (t) => {
  const { pool, key, server } = await fixture(t, { maxStreamsPerKey: 200 });
  const failed = new Set<ClientTunnel>();
  const ask = async (): Promise<void> => {
    const noted = { ...request, onTunnel: (tunnel: ClientTunnel) => failed.add(tunnel) };
    const stream = await pool.open(key, noted, { avoid: failed });
    t.is((await roundTrip(stream, 'x')).toString(), 'x');
  };
  await ask();
  await ask();
  t.is(failed.size, 2);
  await ask();
  t.is(server.tunnels.length, 2);
  await Promise.all(Array.from({ length: 50 }, () => pool.open(key, request)));
  t.is(server.tunnels.length, 2);
});

test('a closed pool resets its streams and opens no others', async (t) => {
  const { pool, key } = await fixture(t);
  const cut = await pool.open(key, request);
  const gone = closedBy(cut.duplex);
  pool.close();
  await gone;
  await t.throwsAsync(pool.open(key, request), { code: 'TUNNEL_CLOSED' });
});

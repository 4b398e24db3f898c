/** Tests how much of a pool one peer may use, and how long a request waits in it. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import type {
  ClientTunnel,
  IncomingRequest,
  ServerTunnel,
  TunnelStream,
} from '../../lib/hbone/engine.ts';
import {
  BARREN_REST_MS,
  MAX_CONNECTING_PER_KEY,
  MAX_FAILED_CONNECTS,
  MAX_WAITERS_PER_KEY,
  TUNNEL_WAIT_MS,
} from '../../lib/hbone/limits.ts';
import { TunnelPool } from '../../lib/hbone/pool.ts';
import type { Handshake, PoolOptions, TunnelKey } from '../../lib/hbone/pool.ts';
import {
  dial,
  echo,
  request,
  roundTrip,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { CLIENT, createTunnelPki, credentials } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

/** Peers by port: at one nothing answers; at the other TCP connects and then stays silent. */
const DEAD = 1;
const MUTE = 2;

/** Long, so that a busy machine does not look like a full pool. */
const PATIENT_MS = 120_000;

interface Fixture {
  readonly pool: TunnelPool;
  readonly live: TunnelKey;
  /** Ports that were connected to, in order. */
  readonly asked: number[];
  /** Requests that the live peer has received. */
  readonly requests: IncomingRequest[];
  /** The live peer's ends of the tunnels. */
  readonly served: readonly ServerTunnel[];
}

async function fixture(
  t: ExecutionContext,
  options: Partial<PoolOptions> & {
    readonly maxStreams?: number;
    /** Tunnels with these numbers, from 1, accept no stream. */
    readonly barren?: readonly number[];
    /** Tunnels with these numbers, from 1, fail during their creation. */
    readonly failing?: (number: number) => boolean;
    /** Delays the creation of the tunnel with this number until the promise resolves. */
    readonly hold?: (number: number) => Promise<void> | undefined;
    /** Delays the connection to the live peer. */
    readonly until?: Promise<void>;
    /** The outcome of a connection to a dead peer. */
    readonly dead?: () => Promise<never>;
    /** The number of tunnels after which none is completed. */
    readonly most?: number;
    readonly clock?: Clock;
  } = {},
): Promise<Fixture> {
  const {
    maxStreams = 100,
    barren = [],
    failing = () => false,
    hold = () => undefined,
    until: open,
    dead = () => new Promise<never>(() => {}),
    most = Infinity,
    clock = systemClock,
    ...poolOptions
  } = options;
  const pki = await createTunnelPki();
  const own = credentials(await pki.issue(CLIENT));
  const served = credentials(await pki.issue('spiffe://cluster.local/ns/demo/sa/web'));
  const requests: IncomingRequest[] = [];
  const server = await serveTunnels(t, carriedEngine, tunnelOptions(served), (incoming) => {
    requests.push(incoming);
    return echo(incoming);
  });
  const asked: number[] = [];
  const connect = async (key: TunnelKey, handshake: Handshake): Promise<ClientTunnel> => {
    const number = asked.push(key.destinationPort);
    if (key.destinationPort === DEAD) return dead();
    if (asked.length > most) return new Promise(() => {});
    if (key.destinationPort === MUTE) return handshake(() => new Promise(() => {}));
    await open;
    await hold(number);
    if (failing(number)) throw new MeshError('TLS_HANDSHAKE', `tunnel ${number} failed`);
    const socket = await dial(t, key.destinationPort);
    const settings = { maxStreams: barren.includes(number) ? 0 : maxStreams };
    return handshake(() => carriedEngine.connect(socket, tunnelOptions(own, settings)));
  };
  const pool = new TunnelPool(
    { idleReleaseMs: 60_000, waitMs: PATIENT_MS, ...poolOptions },
    { clock, connect },
  );
  t.teardown(() => pool.close());
  return { pool, live: keyTo(server.port), asked, requests, served: server.tunnels };
}

function keyTo(destinationPort: number, sourceIp = '127.0.0.1'): TunnelKey {
  return {
    sourceIdentity: CLIENT,
    expectedIdentities: ['spiffe://cluster.local/ns/demo/sa/web'],
    destinationIp: '127.0.0.1',
    destinationPort,
    sourceIp,
  };
}

/** Sends a request to each of so many peers of the kind, without waiting for the outcome. */
function ask(pool: TunnelPool, port: number, peers: number): void {
  for (let peer = 0; peer < peers; peer += 1) {
    pool.open(keyTo(port, `peer ${peer}`), request).catch(() => undefined);
  }
}

for (const [kind, port] of [
  ['that cannot be connected', DEAD],
  ['that say nothing in their handshake', MUTE],
] as const) {
  // spec: hbone.md §9
  test(`many peers ${kind} hold up no other`, async (t) => {
    const { pool, live } = await fixture(t);
    ask(pool, port, 200);
    t.is((await roundTrip(await pool.open(live, request), 'x')).toString(), 'x');
  });
}

test('at the limit of tunnels that are made at once one waits its turn, and no longer than its time', async (t) => {
  const { pool, live, asked } = await fixture(t, { maxConnecting: 2, waitMs: 100 });
  ask(pool, DEAD, 2);
  t.is(pool.stats.connecting, 2);
  await t.throwsAsync(pool.open(live, request), {
    code: 'UPSTREAM_TIMEOUT',
    message: /too many tunnels are under way: no turn within 100 ms/,
  });
  t.deepEqual(asked, [DEAD, DEAD]);
  t.is(pool.stats.keys, 2);
});

test('at the limit of handshakes one waits until another is over, or has had its turn', async (t) => {
  const { pool, live } = await fixture(t, { maxHandshakes: 1 });
  ask(pool, MUTE, 1);
  const streams = await Promise.all([
    pool.open(live, request),
    pool.open({ ...live, sourceIp: '127.0.0.2' }, request),
  ]);
  for (const stream of streams) t.is((await roundTrip(stream, 'x')).toString(), 'x');
});

test('a request whose time is up is never sent, though its tunnel comes later', async (t) => {
  const { promise: open, resolve } = Promise.withResolvers<void>();
  const { pool, live, requests } = await fixture(t, { until: open });
  await t.throwsAsync(pool.open(live, request, { limitMs: 20 }), {
    code: 'UPSTREAM_TIMEOUT',
    message: /no tunnel to 127\.0\.0\.1:\d+ within 20 ms$/,
  });
  const patient = pool.open(live, request);
  resolve();
  t.is((await roundTrip(await patient, 'x')).toString(), 'x');
  t.is(requests.length, 1);
});

// spec: hbone.md §9
test('one connection per tunnel allows no fewer connections to a peer', async (t) => {
  const { pool, live } = await fixture(t, { maxStreams: 1 });
  const streams = await Promise.all(Array.from({ length: 70 }, () => pool.open(live, request)));
  for (const stream of streams) t.is((await roundTrip(stream, 'x')).toString(), 'x');
});

test('at the limit of connections to a peer a request waits for one to end, and no longer than its time', async (t) => {
  const clock = new FakeClock();
  const { pool, live, requests } = await fixture(t, { maxStreams: 1, maxStreamsPerKey: 2, clock });
  const open = (): Promise<TunnelStream> => pool.open(live, request);
  const [one] = await Promise.all([open(), open()]);
  const third = open();
  const late = t.throwsAsync(open(), {
    code: 'UPSTREAM_TIMEOUT',
    message: /no tunnel to .* within 120000 ms, and there is no room on the 2 to it/,
  });
  await clock.advance(PATIENT_MS - 1);
  await roundTrip(one, 'x');
  const stream = await third;
  await clock.advance(1);
  await late;
  t.is((await roundTrip(stream, 'y')).toString(), 'y');
  t.is(requests.length, 3);
});

test('while a tunnel is being made a request waits for what comes of it, and then no longer', async (t) => {
  const clock = new FakeClock();
  const { promise: made, resolve } = Promise.withResolvers<void>();
  const { pool, live } = await fixture(t, {
    maxStreams: 1,
    maxStreamsPerKey: 1,
    until: made,
    clock,
  });
  const first = pool.open(live, request);
  const second = t.throwsAsync(pool.open(live, request), {
    code: 'UPSTREAM_TIMEOUT',
    message: /within 120000 ms/,
  });
  await clock.advance(2 * PATIENT_MS);
  resolve();
  t.is((await roundTrip(await first, 'x')).toString(), 'x');
  await second;
});

test('a request that comes just as a tunnel is not made for want of requests has one made', async (t) => {
  let turn = Promise.withResolvers<never>();
  const { pool, live } = await fixture(t, { maxConnecting: 1, dead: () => turn.promise });
  // The result must not depend on the number of steps until the entry learns of it.
  for (let steps = 0; steps < 16; steps += 1) {
    const key = { ...live, sourceIp: `127.0.0.${2 + steps}` };
    ask(pool, DEAD, 1);
    await t.throwsAsync(pool.open(key, request, { limitMs: 1 }), { code: 'UPSTREAM_TIMEOUT' });
    turn.reject(new MeshError('UPSTREAM_CONNECT', 'gone'));
    turn = Promise.withResolvers<never>();
    for (let step = 0; step < steps; step += 1) await Promise.resolve();
    t.is((await roundTrip(await pool.open(key, request), 'x')).toString(), 'x');
  }
});

test('a tunnel that fails after that time still says why', async (t) => {
  const clock = new FakeClock();
  const { promise: failed, reject } = Promise.withResolvers<void>();
  const { pool, live } = await fixture(t, { until: failed, clock });
  const opening = t.throwsAsync(pool.open(live, request), { code: 'UPSTREAM_NETWORK_POLICY' });
  await clock.advance(PATIENT_MS);
  reject(new MeshError('UPSTREAM_NETWORK_POLICY', 'silence'));
  await opening;
  t.is(pool.stats.keys, 0);
});

test('at the limit of requests that wait for one peer the next is refused, and a closed pool refuses all', async (t) => {
  const { pool } = await fixture(t);
  const waiting = Array.from({ length: MAX_WAITERS_PER_KEY }, () =>
    t.throwsAsync(pool.open(keyTo(DEAD), request), { code: 'TUNNEL_CLOSED' }),
  );
  await t.throwsAsync(pool.open(keyTo(DEAD), request), {
    code: 'UPSTREAM_CONNECT',
    message: /25600 connections already wait/,
  });
  pool.close();
  await Promise.all(waiting);
});

test('so many tunnels to one peer are made at once, however many requests wait for it', async (t) => {
  const { pool, live, asked } = await fixture(t, { maxStreams: 1, most: 1 });
  await pool.open(live, request);
  for (let more = 0; more < 200; more += 1) {
    pool.open(live, request).catch(() => undefined);
  }
  await until(() => asked.length > 1, { what: 'more tunnels' });
  t.is(asked.length, 1 + MAX_CONNECTING_PER_KEY);
  t.is(pool.stats.connecting, MAX_CONNECTING_PER_KEY);
});

test('pools that share the bounds of one make their part of the tunnels', async (t) => {
  const { pool, live, asked } = await fixture(t, { maxStreams: 1, most: 1 });
  pool.divide(4);
  await pool.open(live, request);
  for (let more = 0; more < 200; more += 1) pool.open(live, request).catch(() => undefined);
  await until(() => asked.length > 1, { what: 'more tunnels' });
  t.is(asked.length, 1 + MAX_CONNECTING_PER_KEY / 4);
});

test('a tunnel that ends late takes nothing with it of those that came after it, and closing ends them all', async (t) => {
  const { pool, live, asked, served } = await fixture(t);
  const old = [await pool.open(live, request), await pool.open(live, request)];
  served[0]?.drain();
  await until(() => pool.stats.tunnels === 0, { what: 'the tunnel to be left alone' });
  const young = await pool.open(live, request);
  t.is((await roundTrip(old[0] ?? young, 'x')).toString(), 'x');
  await until(() => served[0]?.streams === 1, { what: 'one of two to end' });
  t.like(pool.stats, { tunnels: 1, keys: 1 });
  const other = await pool.open(live, request);
  t.is(asked.length, 2);
  pool.close();
  for (const { duplex } of [old[1] ?? young, young, other]) {
    duplex.resume();
    await until(() => duplex.destroyed, { what: 'its end' });
  }
});

test('a peer that takes no stream on a tunnel is not asked for one tunnel after the other', async (t) => {
  const clock = new FakeClock();
  const { pool, live, asked } = await fixture(t, { maxStreams: 0, waitMs: TUNNEL_WAIT_MS, clock });
  const refused = [pool.open(live, request), pool.open(live, request)].map((waiting) =>
    t.throwsAsync(waiting, { code: 'UPSTREAM_TIMEOUT' }),
  );
  await until(() => pool.stats.tunnels === 1, { what: 'the tunnel' });
  await clock.advance(TUNNEL_WAIT_MS);
  await Promise.all(refused);
  t.is(asked.length, 1);
});

test('tunnels that take no stream beside others that do are let go, and others made, one after a rest', async (t) => {
  const clock = new FakeClock();
  const { pool, live, asked, served } = await fixture(t, { maxStreams: 1, barren: [2, 3], clock });
  await pool.open(live, request);
  const second = pool.open(live, request);
  for (const tunnels of [2, 3]) {
    await until(() => served.length === tunnels, { what: 'a tunnel that takes nothing' });
    await served[tunnels - 1]?.closed;
    await until(() => pool.stats.tunnels === 1, { what: 'its end' });
    await clock.advance(BARREN_REST_MS - 1);
    t.is(asked.length, tunnels);
    await clock.advance(1);
    t.is(asked.length, tunnels + 1);
  }
  t.is((await roundTrip(await second, 'x')).toString(), 'x');
  t.is(asked.length, 4);
});

test('thousands that come at once for a peer without a tunnel are all carried', async (t) => {
  const { pool, live } = await fixture(t);
  const streams = await Promise.all(Array.from({ length: 6_000 }, () => pool.open(live, request)));
  t.is(streams.length, 6_000);
  t.is(pool.stats.tunnels, 60);
});

// spec: hbone.md §9
test('a tunnel that fails takes no request with it that others in the making can carry, and one is made in its place', async (t) => {
  const { pool, live, asked } = await fixture(t, { failing: (number) => number === 3 });
  const streams = await Promise.all(Array.from({ length: 1_000 }, () => pool.open(live, request)));
  t.is(streams.length, 1_000);
  // Ten are enough, and one failed.
  t.is(asked.length, 11);
});

// spec: hbone.md §9
test('a request waits on while another tunnel is in the making, though its peer has no other', async (t) => {
  const steps = [1, 2, 3].map(() => Promise.withResolvers<void>());
  const { pool, live, served, asked } = await fixture(t, {
    maxStreams: 1,
    failing: (number) => number === 2,
    hold: (number) => steps[number - 1]?.promise,
  });
  const first = pool.open(live, request);
  steps[0]?.resolve();
  (await first).duplex.resume();
  const waiting = [pool.open(live, request), pool.open(live, request)];
  await until(() => asked.length === 3, { what: 'two more tunnels' });
  served[0]?.destroy();
  await until(() => pool.stats.tunnels === 0, { what: 'the only tunnel to be gone' });
  steps[1]?.resolve();
  await until(() => pool.stats.connecting === 1, { what: 'one to fail' });
  steps[2]?.resolve();
  const streams = await Promise.all(waiting.map(async (stream) => roundTrip(await stream, 'x')));
  t.deepEqual(streams.map(String), ['x', 'x']);
});

test('at a peer that is gone so many tunnels fail in a row, and then all who wait', async (t) => {
  const { pool, live, asked } = await fixture(t, {
    maxStreams: 1,
    failing: (number) => number > 1,
  });
  const carried = await pool.open(live, request);
  for (const round of [1, 2]) {
    const refused = Array.from({ length: 5 }, () =>
      t.throwsAsync(pool.open(live, request), {
        code: 'TLS_HANDSHAKE',
        message: /tunnel \d+ failed/,
      }),
    );
    await Promise.all(refused);
    t.is(asked.length, 1 + round * (5 + MAX_FAILED_CONNECTS));
  }
  t.is((await roundTrip(carried, 'x')).toString(), 'x');
});

test('a request whose time is up learns why the last tunnel in the making failed, and others get another', async (t) => {
  const clock = new FakeClock();
  const failed = Promise.withResolvers<void>();
  const { pool, live, asked } = await fixture(t, {
    maxStreams: 1,
    failing: (number) => number === 2,
    hold: (number) => (number === 2 ? failed.promise : undefined),
    clock,
  });
  await pool.open(live, request);
  const late = t.throwsAsync(pool.open(live, request), { code: 'TLS_HANDSHAKE' });
  await until(() => asked.length === 2, { what: 'the second tunnel' });
  await clock.advance(PATIENT_MS);
  failed.resolve();
  await late;
  t.is(asked.length, 2);
  t.is((await roundTrip(await pool.open(live, request), 'x')).toString(), 'x');
});

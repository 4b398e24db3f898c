/** What one peer may take of a pool, and how long a request waits in it. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { framingEngine } from '../../lib/hbone/engine-framing/engine.ts';
import type { ClientTunnel, IncomingRequest } from '../../lib/hbone/engine.ts';
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
import { CLIENT, createTunnelPki, credentials } from '../support/tunnel-pki.ts';

/** Peers by their port: nothing answers at all, or TCP does and then nobody says a word. */
const DEAD = 1;
const MUTE = 2;

interface Fixture {
  readonly pool: TunnelPool;
  readonly live: TunnelKey;
  /** Ports that were connected to, in order. */
  readonly asked: number[];
  /** Requests the live peer has seen. */
  readonly requests: IncomingRequest[];
}

async function fixture(
  t: ExecutionContext,
  options: Partial<PoolOptions> & {
    readonly maxStreams?: number;
    /** The live peer is connected only then. */
    readonly until?: Promise<void>;
  } = {},
): Promise<Fixture> {
  const { maxStreams = 100, until: open, ...poolOptions } = options;
  const pki = await createTunnelPki();
  const own = credentials(await pki.issue(CLIENT));
  const served = credentials(await pki.issue('spiffe://cluster.local/ns/demo/sa/web'));
  const requests: IncomingRequest[] = [];
  const server = await serveTunnels(t, framingEngine, tunnelOptions(served), (incoming) => {
    requests.push(incoming);
    return echo(incoming);
  });
  const asked: number[] = [];
  const connect = async (key: TunnelKey, handshake: Handshake): Promise<ClientTunnel> => {
    asked.push(key.destinationPort);
    if (key.destinationPort === DEAD) return new Promise(() => {});
    if (key.destinationPort === MUTE) return handshake(() => new Promise(() => {}));
    await open;
    const socket = await dial(t, key.destinationPort);
    return handshake(() => framingEngine.connect(socket, tunnelOptions(own, { maxStreams })));
  };
  const pool = new TunnelPool(
    { idleReleaseMs: 60_000, ...poolOptions },
    { clock: systemClock, connect },
  );
  t.teardown(() => pool.close('immediate'));
  return { pool, live: keyTo(server.port), asked, requests };
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

/** Asks so many peers of the kind; nobody waits for what comes of it. */
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
    message: /no tunnel to 127\.0\.0\.1:\d+ within 20 ms/,
  });
  const patient = pool.open(live, request);
  resolve();
  t.is((await roundTrip(await patient, 'x')).toString(), 'x');
  t.is(requests.length, 1);
});

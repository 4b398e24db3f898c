/** Runs the contract on the engine whose bytes native threads carry. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { promisify } from 'node:util';
import test from 'ava';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import type { IncomingRequest } from '../../lib/hbone/engine.ts';
import { CarriedLink, carryStats } from '../../lib/linux/carry.ts';
import type { LinkReceiver } from '../../lib/linux/carry.ts';
import { closeFd } from '../../lib/linux/netns.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';
import { tlsParameters } from '../../lib/tls/parameters.ts';
import { socketPair } from '../support/socket-pair.ts';
import {
  MIB,
  echo,
  openTunnel,
  readAll,
  readToEnd,
  request,
  roundTrip,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import {
  CLIENT,
  SERVER,
  createTunnelPki,
  credentials,
  credentialsLimitedTo,
  identities,
} from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';
import { engineContract } from './hbone-engine.ts';

// Before the others, whose links would be counted too.
test.serial(
  'sockets are joined natively, and nothing of a tunnel is left at its end',
  async (t) => {
    const { client, server } = await identities();
    const application = await socketPair(t);
    const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), (incoming) => {
      incoming.accept({})?.carry?.(new RawSocket(application.near), 'b');
      return Promise.resolve();
    });
    const tunnel = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
    const { near, far } = await socketPair(t);
    const stream = await tunnel.open(request);
    const copy = stream.carry?.(new RawSocket(near), 'a');
    if (copy === null || copy === undefined) throw new Error('the stream is in use');
    t.like(carryStats(), { links: 2, streams: 2 });
    const up = randomBytes(12 * MIB);
    const down = randomBytes(5 * MIB);
    far.end(up);
    application.far.end(down);
    const [got, back] = await Promise.all([readAll(application.far), readAll(far)]);
    t.true(got.equals(up));
    t.true(back.equals(down));
    t.deepEqual(await copy.done, { error: null });
    t.deepEqual([copy.counts.fromA, copy.counts.fromB], [up.length, down.length]);
    tunnel.destroy();
    await until(() => carryStats().links === 0, { what: 'both links to end' });
    t.is(carryStats().streams, 0);
  },
);

/** The near end as a bare descriptor, as listeners accept it. */
function bare(near: Socket): RawSocket {
  return RawSocket.of(new RawSocket(near).take().fd);
}

test('a client that comes with its request is joined by the answer', async (t) => {
  const { client, server } = await identities();
  const application = await socketPair(t);
  const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), (incoming) => {
    incoming.accept({})?.carry?.(new RawSocket(application.near), 'b');
    return Promise.resolve();
  });
  const tunnel = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
  const { near, far } = await socketPair(t);
  const raw = bare(near);
  far.end('early');
  const opening = tunnel.open({ ...request, client: raw });
  // Nobody has asked for the stream to be joined.
  t.is((await readAll(application.far)).toString(), 'early');
  const stream = await opening;
  const copy = stream.carry?.(raw, 'a');
  t.true(raw.gone);
  application.far.end('late');
  t.is((await readAll(far)).toString(), 'late');
  t.deepEqual(await copy?.done, { error: null });
  t.deepEqual([copy?.counts.fromA, copy?.counts.fromB], [5, 4]);
});

test('a client whose request fails is given back, and may come with another', async (t) => {
  const { client, server } = await identities();
  const ways = [
    (incoming: IncomingRequest): void => incoming.refuse(503),
    (incoming: IncomingRequest): void => incoming.reset('refused'),
    (incoming: IncomingRequest): void => incoming.reset('cancel'),
  ];
  const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), (incoming) => {
    const way = ways.shift();
    if (way === undefined) return echo(incoming);
    way(incoming);
    return Promise.resolve();
  });
  const tunnel = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
  const { near, far } = await socketPair(t);
  const raw = bare(near);
  for (const code of ['TUNNEL_REFUSED', 'TUNNEL_CLOSED', 'TUNNEL_RESET']) {
    await t.throwsAsync(tunnel.open({ ...request, client: raw }), { code });
    t.false(raw.gone);
  }
  const stream = await tunnel.open({ ...request, client: raw });
  const copy = stream.carry?.(raw, 'a');
  far.end('again');
  t.is((await readAll(far)).toString(), 'again');
  t.deepEqual(await copy?.done, { error: null });
});

test('a client that is reset before the answer loses its connection, and its stream', async (t) => {
  const { client, server } = await identities();
  const { promise: asked, resolve } = Promise.withResolvers<IncomingRequest>();
  const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), (incoming) => {
    resolve(incoming);
    return Promise.resolve();
  });
  const tunnel = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
  const { near, far } = await socketPair(t);
  const raw = bare(near);
  const opening = tunnel.open({ ...request, client: raw });
  const incoming = await asked;
  const failed = once(far, 'error');
  far.resume();
  raw.reset();
  t.like((await failed)[0], { code: 'ECONNRESET' });
  incoming.accept({});
  const stream = await opening;
  t.deepEqual(await stream.carry?.(raw, 'a')?.done, { error: null });
  await until(() => tunnel.streams === 0, { what: 'the stream to end' });
});

// node:tls encrypts, through a local socket.
test('a tunnel of TLS 1.2 carries, probes and ends like any other', async (t) => {
  const policy = { tls12: true, compliance: null };
  const pki = await createTunnelPki();
  const server = credentials(await pki.issue(SERVER), policy);
  const client = credentialsLimitedTo(await pki.issue(CLIENT), {
    ...tlsParameters(policy),
    maxVersion: 'TLSv1.2',
  });
  const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), echo);
  const tunnel = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
  const bytes = randomBytes(3 * MIB);
  const turns = [1, 2, 3, 4].map(async () => roundTrip(await tunnel.open(request), bytes));
  for (const got of await Promise.all(turns)) t.true(got.equals(bytes));
  t.true(await tunnel.probe(60_000));
  const held = await tunnel.open(request);
  tunnel.drain();
  t.is((await roundTrip(held, 'to the end')).toString(), 'to the end');
  t.is(await tunnel.closed, 'drained');
  await until(() => fixture.tunnels[0]?.streams === 0, { what: "the server's streams to end" });

  const second = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
  const cut = await second.open(request);
  const end = readToEnd(cut.duplex);
  fixture.tunnels[1]?.destroy();
  t.is((await end).end, 'reset');
  t.is(await second.closed, 'peer-closed');
  const connections = promisify(fixture.server.getConnections.bind(fixture.server));
  await until(async () => (await connections()) === 0, { what: 'all connections to close' });
});

test('bytes that nobody encrypts go to local sockets only', async (t) => {
  const { near } = await socketPair(t);
  const { fd } = new RawSocket(near).take();
  t.teardown(() => closeFd(fd));
  const nobody = {} as LinkReceiver;
  const none = Buffer.alloc(0);
  const options = {
    fd,
    isServer: true,
    cipher: 'none',
    readSecret: none,
    writeSecret: none,
    readSequence: 0,
    writeSequence: 0,
    unread: none,
    received: none,
    maxFrameSize: MIB,
    maxBlockBytes: MIB,
    streamWindow: MIB,
    connectionWindow: MIB,
    rekeyRecords: 0,
  };
  t.throws(() => new CarriedLink(options, nobody, 64), { message: /local sockets/ });
  t.throws(() => new CarriedLink({ ...options, cipher: 'NULL' }, nobody, 64), {
    message: /cipher/,
  });
});

engineContract(test, carriedEngine);

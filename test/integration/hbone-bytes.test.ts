/** Tests that the pod's account bounds a tunnel's memory while readers stall, and that no other stream waits for them. */
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import type { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import { PRESSED_WINDOW_BYTES } from '../../lib/hbone/session/limits.ts';
import { http2Engine } from '../support/engine-http2/engine.ts';
import type { ClientTunnel, HboneEngine, TunnelStream } from '../../lib/hbone/engine.ts';
import type { Copy } from '../../lib/net/bidi-copy.ts';
import { HeldBytes } from '../../lib/net/held-bytes.ts';
import type { PodBytes } from '../../lib/net/held-bytes.ts';
import { NodeBudget, newBudgetMemory } from '../../lib/net/node-budget.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';
import { rawFrame, rawHttp2 } from '../support/raw-http2.ts';
import { socketPair } from '../support/socket-pair.ts';
import {
  KIB,
  MIB,
  openTunnel,
  readAll,
  request,
  roundTrip,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import type { ServerFixture } from '../support/tunnel-kit.ts';
import { identities } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

const STREAMS = 40;
const PER_POD = 2 * MIB;
const settings = { streamWindow: MIB, connectionWindow: 4 * MIB };

interface Rig {
  readonly held: HeldBytes;
  /** The account of the server's side. */
  readonly pod: PodBytes;
  readonly server: ServerFixture;
  /** The account of the client's side. */
  readonly credentials: TunnelCredentials;
  /** Streams to `hold:1`, accepted and not read. */
  readonly stalled: TunnelStream[];
  readonly connect: (account?: PodBytes) => Promise<ClientTunnel>;
}

async function rig(t: ExecutionContext, engine: HboneEngine = carriedEngine): Promise<Rig> {
  const { client, server } = await identities();
  const budget = new NodeBudget(newBudgetMemory(), 0, { connections: 1, handshakes: 1 });
  const held = new HeldBytes(budget, { process: 256 * MIB, perPod: PER_POD }, systemClock);
  const pod = held.open();
  t.teardown(() => pod.close());
  const stalled: TunnelStream[] = [];
  const options = { ...tunnelOptions(server, settings), bytes: pod };
  const fixture = await serveTunnels(t, carriedEngine, options, (incoming) => {
    const stream = incoming.accept({});
    if (stream === null) return Promise.resolve();
    if (incoming.authority === 'hold:1') stalled.push(stream);
    else stream.duplex.pipe(stream.duplex);
    return Promise.resolve();
  });
  return {
    held,
    pod,
    server: fixture,
    credentials: client,
    stalled,
    connect: (account) =>
      openTunnel(t, engine, fixture.port, {
        ...tunnelOptions(client, settings),
        ...(account === undefined ? {} : { bytes: account }),
      }),
  };
}

function openHeld(tunnel: ClientTunnel): Promise<TunnelStream> {
  return tunnel.open({ authority: 'hold:1', headers: {} });
}

for (const engine of [carriedEngine, http2Engine]) {
  // spec: hbone.md §8
  test(`readers that stall hold no more than their pod may, and no other stream waits (client ${engine.name})`, async (t) => {
    const { pod, server, stalled, connect } = await rig(t, engine);
    const tunnel = await connect();
    const bytes = randomBytes(512 * KIB);
    const streams: TunnelStream[] = [];
    for (let n = 0; n < STREAMS; n += 1) {
      const stream = await openHeld(tunnel);
      stream.duplex.end(bytes);
      streams.push(stream);
    }
    await until(() => pod.pressed, { what: 'the pod to hold too much' });
    // Other streams of the tunnel go on, also after all stalled bytes have arrived.
    for (let n = 0; n < 5; n += 1) {
      const part = bytes.subarray(0, 200 * KIB);
      t.true((await roundTrip(await tunnel.open(request), part)).equals(part));
    }
    t.true(pod.pressed);
    t.true(pod.bytes <= PER_POD + STREAMS * PRESSED_WINDOW_BYTES, `${pod.bytes}`);
    // The readers go on: no byte is missing or still held.
    const read = await Promise.all(stalled.map((stream) => readAll(stream.duplex)));
    t.is(read.length, STREAMS);
    t.true(read.every((all) => all.equals(bytes)));
    await until(() => pod.bytes === 0 && !pod.pressed, { what: 'the account to be even' });
    for (const stream of stalled) stream.duplex.end();
    await until(() => tunnel.streams === 0, { what: 'the streams to end' });
    // The windows have their usual size again.
    const whole = await roundTrip(await tunnel.open(request), bytes);
    t.true(whole.equals(bytes));
    t.is(server.requestErrors.length, 0);
    t.true(tunnel.usable);
  });
}

test('an empty last frame ends a stream whose window is below nothing', async (t) => {
  const { pod, stalled, connect } = await rig(t);
  const tunnel = await connect();
  const first = await openHeld(tunnel);
  first.duplex.write(randomBytes(900 * KIB));
  const second = await openHeld(tunnel);
  second.duplex.write(randomBytes(500 * KIB));
  await until(() => pod.pressed, { what: 'the pod to hold too much' });
  t.is((await roundTrip(await tunnel.open(request), 'told')).toString(), 'told');
  first.duplex.end();
  second.duplex.end();
  const lengths = await Promise.all(
    stalled.map(async (stream) => (await readAll(stream.duplex)).length),
  );
  t.deepEqual(lengths, [900 * KIB, 500 * KIB]);
});

test('a neighbour of a pressed pod is not pressed, and a pod is pressed by all its tunnels together', async (t) => {
  const { held, pod, connect } = await rig(t);
  const neighbour = held.open();
  t.teardown(() => neighbour.close());
  for (let n = 0; n < 4; n += 1) {
    const stream = await openHeld(await connect());
    stream.duplex.write(randomBytes(400 * KIB));
  }
  await until(() => pod.pressed, { what: 'the pod to hold too much' });
  const tunnel = await connect(neighbour);
  const bytes = randomBytes(512 * KIB);
  t.true((await roundTrip(await tunnel.open(request), bytes)).equals(bytes));
  t.false(neighbour.pressed);
  await until(() => neighbour.bytes === 0, { what: "the neighbour's account to be even" });
});

test('a peer that does not take note of smaller windows comes no further than the window of its connection', async (t) => {
  const { pod, server, credentials: client } = await rig(t);
  const peer = await rawHttp2(t, server.port, client);
  peer.greet();
  for (let n = 0; n < 10; n += 1) peer.connect(2 * n + 1, 'hold:1');
  // The peer sends as much as its windows allow: a MiB on each of ten streams exceeds the connection window.
  const piece = rawFrame(0, 0, 1, randomBytes(16 * KIB));
  let sent = 0;
  for (let n = 0; n < 10; n += 1) {
    const frame = Buffer.from(piece);
    frame.writeUInt32BE(2 * n + 1, 5);
    for (let part = 0; part < 64; part += 1) {
      peer.socket.write(frame);
      sent += 16 * KIB;
    }
  }
  await peer.closed;
  t.true(sent > 2 * PER_POD);
  t.true(
    peer.frames.some(
      ({ type, flags, payload }) => type === 4 && flags === 0 && payload.length === 6,
    ),
  );
  t.is(peer.goaway, 3);
  await until(() => pod.bytes <= PER_POD, { what: 'no more than that to be held' });
});

test('sources are not read while what they sent cannot go, and all of it arrives in the end', async (t) => {
  const { held, pod, stalled, connect } = await rig(t);
  const account = held.open();
  t.teardown(() => account.close());
  const tunnel = await connect(account);
  const bytes = randomBytes(1.5 * MIB);
  const copies: Copy[] = [];
  const sources: Socket[] = [];
  for (let n = 0; n < 20; n += 1) {
    const { near, far } = await socketPair(t);
    const stream = await openHeld(tunnel);
    const copy = stream.carry?.(new RawSocket(near), 'a');
    if (copy === null || copy === undefined) throw new Error('the stream is in use');
    copies.push(copy);
    sources.push(far);
    far.end(bytes);
  }
  await until(() => pod.pressed, { what: 'the receiver to hold too much' });
  const other = await openHeld(await connect());
  other.duplex.end('through');
  await until(() => stalled.length === 21, { what: 'another tunnel to be served' });
  t.false(account.pressed);
  const read = stalled.map((stream) => {
    stream.duplex.end();
    return readAll(stream.duplex);
  });
  const all = await Promise.all(read);
  t.is(all.filter((one) => one.equals(bytes)).length, 20);
  for (const far of sources) far.resume();
  await Promise.all(copies.map((copy) => copy.done));
  await until(() => account.bytes === 0 && !account.pressed, { what: 'the account to be even' });
});

test('an application that does not read is charged to its pod, and given back when it goes', async (t) => {
  const { held } = await rig(t);
  const account = held.open();
  t.teardown(() => account.close());
  const { client, server } = await identities();
  const { near, far } = await socketPair(t);
  const fixture = await serveTunnels(
    t,
    carriedEngine,
    { ...tunnelOptions(server, settings), bytes: account },
    (incoming) => {
      incoming.accept({})?.carry?.(new RawSocket(near), 'b');
      return Promise.resolve();
    },
  );
  const tunnel = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client, settings));
  const stream = await tunnel.open(request);
  stream.duplex.write(randomBytes(8 * MIB + 512 * KIB));
  far.pause();
  await until(() => account.bytes > 256 * KIB, { what: 'the application to be behind' });
  far.destroy();
  await until(() => near.closed, { what: 'the application to be gone' });
  await until(() => account.bytes === 0, { what: 'the account to be even' });
  t.false(near.writable);
});

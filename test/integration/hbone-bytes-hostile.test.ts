/** Tests peers that ignore smaller windows: the bytes held for all of them stay within the pod's limit. */
import { randomBytes } from 'node:crypto';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import type { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import { errorCode, frameType, settingId } from '../../lib/hbone/session/frames.ts';
import { PRESSED_WINDOW_BYTES } from '../../lib/hbone/session/limits.ts';
import type { TunnelSettings, TunnelStream } from '../../lib/hbone/engine.ts';
import { MAX_ACK_RENEWALS } from '../../lib/hbone/limits.ts';
import { HeldBytes, PRESSURE_CHECK_MS } from '../../lib/net/held-bytes.ts';
import type { ByteAccount, PodBytes } from '../../lib/net/held-bytes.ts';
import { NodeBudget, newBudgetMemory } from '../../lib/net/node-budget.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { rawFrame, rawHttp2 } from '../support/raw-http2.ts';
import type { RawHttp2 } from '../support/raw-http2.ts';
import { KIB, MIB, serveTunnels, testSettings, tunnelOptions } from '../support/tunnel-kit.ts';
import type { ServerFixture } from '../support/tunnel-kit.ts';
import { identities } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

const TUNNELS = 24;
const PER_POD = 4 * MIB;
/** Half of the limit may arrive at once when a pod comes under pressure. */
const CONNECTION_WINDOW = PER_POD / 2;
/** A tunnel's window is a part of that. */
const FULL_WINDOW = (CONNECTION_WINDOW * 3) / 4;
const STREAMS = 4;
const DEFAULT_WINDOW = 65_535;
/** A native thread holds at most so much of a link before JavaScript knows: MAX_UNKNOWN_BYTES and one read of addon/carry. */
const UNKNOWN_BYTES = 768 * KIB;

interface Rig {
  readonly pod: PodBytes;
  /** Returns the largest number of bytes held at any time. */
  readonly most: () => number;
  /** Accepted streams, which nothing reads. */
  readonly unread: readonly TunnelStream[];
  readonly server: ServerFixture;
  readonly peer: () => Promise<RawHttp2>;
}

async function rig(
  t: ExecutionContext,
  clock: Clock = systemClock,
  settings: Partial<TunnelSettings> = {},
): Promise<Rig> {
  const { client, server }: { client: TunnelCredentials; server: TunnelCredentials } =
    await identities();
  const budget = new NodeBudget(newBudgetMemory(), 0, { connections: 1, handshakes: 1 });
  const held = new HeldBytes(budget, { process: 256 * MIB, perPod: PER_POD }, clock);
  const pod = held.open();
  t.teardown(() => pod.close());
  let most = 0;
  const unread: TunnelStream[] = [];
  const bytes: ByteAccount = {
    get pressed() {
      return pod.pressed;
    },
    get full() {
      return pod.full;
    },
    headroom: pod.headroom,
    charge: (more) => pod.charge(more),
    receive: (more) => {
      pod.receive(more);
      most = Math.max(most, pod.bytes);
    },
    owe: (debtor) => pod.owe(debtor),
    relieve: () => pod.relieve(),
    onPressure: (listener) => pod.onPressure(listener),
  };
  const options = { ...tunnelOptions(server, settings), clock, bytes };
  const fixture = await serveTunnels(t, carriedEngine, options, (incoming) => {
    // Nothing reads the stream.
    const stream = incoming.accept({});
    if (stream !== null) unread.push(stream);
    return Promise.resolve();
  });
  return {
    pod,
    most: () => most,
    unread,
    server: fixture,
    peer: () => rawHttp2(t, fixture.port, client),
  };
}

/** Opens streams and sends as much as the connection window allows. */
function flood(peer: RawHttp2, bytes: number): void {
  for (let n = 0; n < STREAMS; n += 1) peer.connect(2 * n + 1, 'hold:1');
  const piece = randomBytes(8 * KIB);
  for (let sent = 0; sent + piece.length <= bytes; sent += piece.length) {
    const stream = 2 * ((sent / piece.length) % STREAMS) + 1;
    peer.socket.write(rawFrame(0, 0, stream, piece));
  }
}

// spec: hbone.md §8
test('tunnels that never acknowledge hold no more than their pod may, and the largest are ended', async (t) => {
  const { pod, most, server, peer } = await rig(t);
  const peers = await Promise.all(Array.from({ length: TUNNELS }, peer));
  for (const one of peers) one.greetOnly();
  await until(() => server.tunnels.length === TUNNELS, { what: 'all tunnels' });
  for (const one of peers) flood(one, FULL_WINDOW);
  const isSettled = (one: RawHttp2): boolean => one.socket.destroyed || one.goaway !== null;
  const room = Math.floor(PER_POD / FULL_WINDOW);
  await until(() => peers.filter(isSettled).length >= TUNNELS - room, {
    what: 'the others to be ended',
  });
  // No tunnel is ended for bytes that another one is about to drop.
  t.is(peers.filter(isSettled).length, TUNNELS - room);
  t.true(most() <= PER_POD + TUNNELS * UNKNOWN_BYTES, `${most()}`);
  t.true(pod.pressed);
  for (const one of peers.filter(isSettled)) {
    if (one.goaway !== null) t.is(one.goaway, errorCode.enhanceYourCalm);
  }
});

test('a tunnel that begins while its pod holds too much has small windows at once, and the usual ones afterwards', async (t) => {
  const clock = new FakeClock();
  const { pod, most, unread, peer } = await rig(t, clock);
  const excess = CONNECTION_WINDOW + 1;
  pod.charge(excess);
  t.true(pod.pressed);
  const late = await Promise.all(Array.from({ length: TUNNELS }, peer));
  for (const one of late) one.greetOnly();
  const [first] = late;
  if (first === undefined) throw new Error('no peer');
  await until(() => first.settings(settingId.initialWindowSize).length === 1, { what: 'SETTINGS' });
  t.deepEqual(first.settings(settingId.initialWindowSize), [PRESSED_WINDOW_BYTES]);
  t.is(first.connectionWindow, 0);
  for (const one of late) flood(one, DEFAULT_WINDOW);
  await until(() => pod.bytes > excess + (TUNNELS * DEFAULT_WINDOW) / 2, { what: 'bytes' });
  t.true(most() <= excess + TUNNELS * DEFAULT_WINDOW, `${most()}`);
  t.true(most() < PER_POD);
  await until(() => unread.length === TUNNELS * STREAMS, { what: 'all streams' });
  for (const stream of unread) stream.reset();
  await until(() => pod.bytes === excess, { what: 'the account to be even' });
  const honest = await peer();
  honest.greet();
  await until(() => honest.settings(settingId.initialWindowSize).length === 1, {
    what: 'SETTINGS',
  });
  pod.charge(-excess);
  await clock.advance(PRESSURE_CHECK_MS);
  await until(() => honest.settings(settingId.initialWindowSize).length === 2, {
    what: 'SETTINGS',
  });
  t.deepEqual(honest.settings(settingId.initialWindowSize).at(-1), testSettings.streamWindow);
  t.is(honest.connectionWindow, 0);
  honest.acknowledge();
  await until(() => honest.connectionWindow > 0, { what: 'WINDOW_UPDATE' });
  // Three quarters of the headroom; the rest is for bytes that a native thread has not told yet.
  t.is(honest.connectionWindow, FULL_WINDOW - DEFAULT_WINDOW);
});

test('SETTINGS that come later must be acknowledged in time, too', async (t) => {
  const clock = new FakeClock();
  const { pod, server, peer } = await rig(t, clock);
  const [silent, honest] = [await peer(), await peer()];
  for (const one of [silent, honest]) {
    one.greet();
    await until(() => one.frames.some(({ type, flags }) => type === 4 && flags === 1), {
      what: 'its SETTINGS to be read',
    });
  }
  pod.charge(CONNECTION_WINDOW + 1);
  for (const one of [silent, honest]) {
    await until(() => one.settings(settingId.initialWindowSize).length === 2, { what: 'SETTINGS' });
  }
  honest.acknowledge();
  honest.socket.write(rawFrame(6, 0, 0, Buffer.alloc(8)));
  await until(() => honest.frames.some(({ type }) => type === 6), { what: 'the answer to PING' });
  await clock.advance(testSettings.handshakeTimeoutMs);
  await silent.closed;
  t.is(silent.goaway, errorCode.settingsTimeout);
  t.is(honest.goaway, null);
  t.deepEqual(
    server.tunnels.map(({ usable }) => usable),
    [false, true],
  );
});

test('received bytes renew the time to acknowledge SETTINGS a bounded number of times', async (t) => {
  const clock = new FakeClock();
  const handshakeTimeoutMs = 100;
  const { server, peer } = await rig(t, clock, { handshakeTimeoutMs });
  const [silent, busy] = [await peer(), await peer()];
  for (const one of [silent, busy]) one.greetOnly();
  const answers = (): number => busy.frames.filter(({ type }) => type === frameType.ping).length;
  const send = async (): Promise<void> => {
    const before = answers();
    busy.socket.write(rawFrame(frameType.ping, 0, 0, Buffer.alloc(8)));
    await until(() => answers() > before, { what: 'the answer to PING' });
  };
  await until(() => server.tunnels.length === 2, { what: 'both tunnels' });
  for (let renewal = 0; renewal < MAX_ACK_RENEWALS; renewal += 1) {
    await send();
    await clock.advance(handshakeTimeoutMs);
    t.is(busy.goaway, null, `after ${renewal} renewals`);
  }
  await silent.closed;
  t.is(silent.goaway, errorCode.settingsTimeout);
  await send();
  await clock.advance(handshakeTimeoutMs);
  await busy.closed;
  t.is(busy.goaway, errorCode.settingsTimeout);
});

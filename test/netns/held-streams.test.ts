/**
 * Holds a real listener's memory against peers that hold streams, or move bytes in the most expensive ways, and prints the neighbour's times beside each.
 * `test/native/bounds.test.cc` does the same to the carry alone.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import {
  MAX_STREAM_ID,
  frameFlag,
  frameType,
  settingId,
  windowUpdateFrame,
} from '../../lib/hbone/session/frames.ts';
import { MAX_CONCURRENT_STREAMS } from '../../lib/hbone/limits.ts';
import { carryStats } from '../../lib/linux/carry.ts';
import { Arena, p99, repeat, streamId } from '../support/hostile-arena.ts';
import { connectFrame, frame } from '../support/hostile-peer.ts';
import type { HostilePeer, HostilePeerOptions } from '../support/hostile-peer.ts';
import { listenerSettings } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { until } from '../support/until.ts';

const KIB = 1_024;
const MIB = 1_048_576;
const APPLICATION = fileURLToPath(new URL('../fixtures/silent-application.ts', import.meta.url));
const SILENT_PORT = 7_070;

const STREAMS = 10_000;
/** The peers answer no PING, and a busy machine takes its time. */
const PATIENT = { pingIntervalMs: 600_000, pingTimeoutMs: 600_000 };
const HANDSHAKE_TIMEOUT_MS = 60_000;
/** The process holds a descriptor for each. */
const LIMITS = { ...listenerSettings.limits, connections: 25_000, connectionsPerPod: 25_000 };
/** Growth of the process for each stream, with the test's own part. */
const BYTES_PER_STREAM = 32 * KIB;

/** Growth that one peer may cause, garbage that a busy machine has not collected included. Readers that stall ask for 800 MiB. */
const GROWTH_BYTES = 640 * MIB;
/** Requests of the neighbour beside each, at least. */
const REQUESTS = 100;

const WIDE = [
  [settingId.initialWindowSize, MAX_STREAM_ID],
  [settingId.maxFrameSize, 16_777_215],
] as const;
const wideConnection = windowUpdateFrame(0, MAX_STREAM_ID - 65_535);

/** Starts the application of `web` that never answers; `half` counts its connections that only the client has ended. */
async function silentApplication(at: Arena): Promise<{
  readonly half: () => Promise<number>;
  readonly stop: () => Promise<void>;
}> {
  const child = fork(APPLICATION, [at.web.netns.path, String(SILENT_PORT)]);
  const closed = once(child, 'close');
  await once(child, 'message');
  return {
    half: async () => {
      const answer = once(child, 'message');
      child.send('half');
      const [count] = (await answer) as [number];
      return count;
    },
    stop: async () => {
      child.kill();
      await closed;
    },
  };
}

/** A stream of a client that says one byte, and that it will say no more. */
function halfClosed(id: number, authority: string): Buffer {
  const last = frame(frameType.data, frameFlag.endStream, id, Buffer.of(0x78));
  return Buffer.concat([connectFrame(id, authority), last]);
}

// spec: hbone.md §8
test('10,000 streams that are half open and that nobody ends cost memory of their number, and nobody else', async (t) => {
  const at = await Arena.start(t, {
    limits: LIMITS,
    http2: { ...listenerSettings.http2, ...PATIENT },
    handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS,
  });
  const application = await silentApplication(at);
  await at.neighbourGoesOn('peace', REQUESTS);
  const descriptors = (): number => readdirSync('/proc/self/fd').length;
  const before = {
    rss: process.memoryUsage.rss(),
    p99: p99(at.served.splice(0)),
    descriptors: descriptors(),
  };
  const peers: HostilePeer[] = [];
  const authority = `${at.web.ip}:${SILENT_PORT}`;
  for (let n = 0; n < STREAMS / MAX_CONCURRENT_STREAMS; n += 1) {
    const peer = await at.attack();
    peers.push(peer);
    await peer.send(repeat(MAX_CONCURRENT_STREAMS, (m) => halfClosed(streamId(m), authority)));
  }
  await until(async () => (await application.half()) === STREAMS, {
    what: 'the application to hear the end of every stream',
    timeoutMs: 120_000,
  });
  const opening = p99(at.served.splice(0));
  await at.neighbourGoesOn('the held streams', REQUESTS);
  t.is(await application.half(), STREAMS);
  t.true(peers.every((peer) => !peer.ended));
  const growth = process.memoryUsage.rss() - before.rss;
  t.true(growth < STREAMS * BYTES_PER_STREAM, `${Math.round(growth / STREAMS)} bytes each`);
  t.log(
    `${(growth / STREAMS / KIB).toFixed(1)} KiB for each of ${STREAMS} streams; p99 of the neighbour ${before.p99.toFixed(1)} ms before, ` +
      `${opening.toFixed(1)} while they open, ${p99(at.served).toFixed(1)} beside them`,
  );
  for (const peer of peers) peer.socket.destroy();
  await until(async () => (await at.mesh.connections()).length <= 2, {
    what: 'the streams to end',
    timeoutMs: 60_000,
  });
  await until(() => descriptors() <= before.descriptors + 8, {
    what: 'the descriptors to come back',
    timeoutMs: 20_000,
  });
  t.is(await at.endNeighbour(), null);
  await application.stop();
});

/** Writes each byte as a TLS record of its own. */
async function byteByByte({ socket }: HostilePeer, bytes: Buffer): Promise<void> {
  for (const byte of bytes) {
    if (!socket.writable) return;
    await new Promise<void>((resolve) => {
      socket.write(Buffer.of(byte), () => resolve());
    });
  }
}

/** The loads by name; none of them breaks a rule. */
const LOADS: Readonly<
  Record<
    string,
    {
      readonly options?: HostilePeerOptions;
      readonly run: (peer: HostilePeer, at: Arena) => Promise<void>;
      /** Records that it makes, at least. */
      readonly records?: number;
    }
  >
> = {
  'a reader that stalls, with windows wide open': {
    options: { settings: WIDE, read: false },
    run: (peer, { web }) =>
      peer.send([
        wideConnection,
        ...repeat(MAX_CONCURRENT_STREAMS, (n) => connectFrame(streamId(n), `${web.ip}:9090`)),
      ]),
  },
  'a peer that never returns window': {
    run: (peer, { web }) =>
      peer.send(repeat(MAX_CONCURRENT_STREAMS, (n) => connectFrame(streamId(n), `${web.ip}:9090`))),
  },
  'frames of one byte': {
    options: { settings: WIDE },
    run: (peer, { authority }) =>
      peer.send([
        wideConnection,
        connectFrame(1, authority),
        ...repeat(100_000, () => frame(frameType.data, 0, 1, Buffer.of(0x78))),
      ]),
  },
  'frames of 16 MiB': {
    options: { settings: WIDE },
    run: (peer, { web }) => {
      const large = frame(frameType.data, 0, 1, Buffer.alloc(16_777_215));
      return peer.send([connectFrame(1, `${web.ip}:9090`), large, large, large, large]);
    },
  },
  'records of one byte': {
    records: 10_000,
    run: async (peer, { authority }) => {
      await peer.send([connectFrame(1, authority)]);
      const small = frame(frameType.data, 0, 1, Buffer.of(0x78));
      await byteByByte(peer, Buffer.concat(Array.from({ length: 1_000 }, () => small)));
    },
  },
};

// spec: hbone.md §8
test('what moves bytes in the most expensive ways costs bounded memory, and nobody else', async (t) => {
  const http2 = {
    ...listenerSettings.http2,
    ...PATIENT,
    streamWindow: 100_663_296,
    connectionWindow: 134_217_728,
    frameSize: 16_777_215,
  };
  const at = await Arena.start(t, { http2, handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS });
  await at.neighbourGoesOn('peace', REQUESTS);
  t.log(`p99 of the neighbour alone ${p99(at.served.splice(0)).toFixed(1)} ms`);
  const before = process.memoryUsage.rss();
  for (const [name, { options, run, records = 0 }] of Object.entries(LOADS)) {
    const read = carryStats().recordsRead;
    const peer = await at.attack(options);
    at.served.length = 0;
    await Promise.all([run(peer, at), at.neighbourGoesOn(name, REQUESTS)]);
    const growth = process.memoryUsage.rss() - before;
    t.true(growth < GROWTH_BYTES, `${name}: ${Math.round(growth / MIB)} MiB`);
    t.false(peer.ended, `${name} keeps its tunnel`);
    t.true(carryStats().recordsRead - read >= records, `${name}: too few records`);
    t.log(`${name}: p99 ${p99(at.served).toFixed(1)} ms, ${Math.round(growth / MIB)} MiB`);
    peer.socket.destroy();
    await until(async () => (await at.mesh.connections()).length <= 2, {
      what: `the connections of ${name} to end`,
      timeoutMs: 20_000,
    });
  }
  t.is(await at.endNeighbour(), null);
});

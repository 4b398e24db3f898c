/** Tests peers that break or stretch the rules of HTTP/2: each loses at most its own tunnel. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import * as fc from 'fast-check';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import { errorCode, windowUpdateFrame } from '../../lib/hbone/session/frames.ts';
import type { TunnelStream } from '../../lib/hbone/engine.ts';
import { rawFrame, rawHttp2 } from '../support/raw-http2.ts';
import type { RawHttp2 } from '../support/raw-http2.ts';
import {
  MIB,
  echo,
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
import { acceptStaying } from '../support/staying-tls.ts';

interface Rig {
  readonly server: ServerFixture;
  readonly accepted: TunnelStream[];
  readonly hostile: () => Promise<RawHttp2>;
  /** Checks that an honest tunnel beside the hostile one works. */
  readonly stillServes: () => Promise<void>;
}

async function rig(t: ExecutionContext): Promise<Rig> {
  const { client, server } = await identities();
  const accepted: TunnelStream[] = [];
  const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), (incoming) => {
    if (incoming.authority !== 'hold:1') return echo(incoming);
    const stream = incoming.accept({});
    if (stream !== null) accepted.push(stream);
    return Promise.resolve();
  });
  const honest = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
  return {
    server: fixture,
    accepted,
    hostile: () => rawHttp2(t, fixture.port, client),
    stillServes: async () => {
      t.is((await roundTrip(await honest.open(request), 'fine')).toString(), 'fine');
    },
  };
}

const EIGHT = Buffer.alloc(8);

/** Makes a HEADERS frame with one indexed field. */
function headersFrame(id: number): Buffer {
  return rawFrame(1, 4, id, Buffer.of(0x82));
}

/** True for the expected GOAWAY code, or null: the GOAWAY may be lost with the connection. */
function isLastWord(code: number | null): boolean {
  return code === null || code === errorCode.enhanceYourCalm;
}

/** Sends floods, each made by `next`, until the peer ends the tunnel. Returns the error code of its GOAWAY. */
async function floodWith(peer: RawHttp2, next: () => Buffer): Promise<number | null> {
  for (let round = 0; round < 40 && !peer.socket.destroyed; round += 1) {
    peer.socket.write(next());
    await new Promise((resolve) => setImmediate(resolve));
  }
  await peer.closed;
  return peer.goaway;
}

// spec: hbone.md §8
test('a flood of HEADERS on a stream that was reset ends its tunnel and no other', async (t) => {
  const { hostile, stillServes } = await rig(t);
  const peer = await hostile();
  peer.greet();
  // The request is no CONNECT, so it is reset at once.
  peer.socket.write(headersFrame(1));
  await until(() => peer.frames.some(({ type, id }) => type === 3 && id === 1), {
    what: 'the reset',
  });
  const flood = Buffer.concat(Array.from({ length: 1_000 }, () => headersFrame(1)));
  t.true(isLastWord(await floodWith(peer, () => flood)));
  await stillServes();
});

// spec: hbone.md §8
test('a flood of requests after a drain ends its tunnel and no other', async (t) => {
  const { hostile, server, stillServes } = await rig(t);
  const peer = await hostile();
  peer.greet();
  peer.connect(1, 'hold:1');
  await until(() => peer.frames.some(({ type, id }) => type === 1 && id === 1), {
    what: 'the answer',
  });
  server.tunnels.at(-1)?.drain();
  const ping = await until(() => peer.frames.find(({ type }) => type === 6), { what: 'PING' });
  peer.socket.write(rawFrame(6, 1, 0, ping.payload));
  await until(() => peer.frames.filter(({ type }) => type === 7).length === 2, {
    what: 'the last word on what is served',
  });
  let id = 1;
  const flood = (): Buffer =>
    Buffer.concat(Array.from({ length: 1_000 }, () => headersFrame((id += 2))));
  t.true(isLastWord(await floodWith(peer, flood)));
  await stillServes();
});

for (const [what, one] of [
  ['PING', rawFrame(6, 0, 0, EIGHT)],
  ['SETTINGS', rawFrame(4, 0, 0)],
  ['empty DATA', rawFrame(0, 0, 1)],
  ['DATA of padding alone', rawFrame(0, 8, 1, Buffer.alloc(1))],
  ['PRIORITY', rawFrame(2, 0, 1, Buffer.alloc(5))],
  ['frames of an unknown type', rawFrame(77, 0, 1)],
  ['WINDOW_UPDATE', windowUpdateFrame(0, 1)],
  ['RST_STREAM of an ended stream', rawFrame(3, 0, 1, Buffer.alloc(4))],
] as const) {
  // spec: hbone.md §8
  test(`a flood of ${what} ends its tunnel and no other`, async (t) => {
    const { hostile, stillServes } = await rig(t);
    const peer = await hostile();
    peer.greet();
    peer.connect(1, 'hold:1');
    const flood = Buffer.concat(Array.from({ length: 1_000 }, () => one));
    const ended = peer.closed.then(() => true);
    for (let round = 0; round < 40; round += 1) {
      if (peer.socket.destroyed) break;
      peer.socket.write(flood);
      await new Promise((resolve) => setImmediate(resolve));
    }
    t.true(await ended);
    await stillServes();
  });
}

test('a header block without end, and one of many empty parts, end their tunnel', async (t) => {
  const { hostile, stillServes } = await rig(t);
  for (const part of [rawFrame(9, 0, 1, Buffer.alloc(1_000)), rawFrame(9, 0, 1)]) {
    const peer = await hostile();
    peer.greet();
    peer.socket.write(rawFrame(1, 0, 1));
    peer.socket.write(Buffer.concat(Array.from({ length: 200 }, () => part)));
    await peer.closed;
    if (peer.goaway !== null) t.is(peer.goaway, errorCode.enhanceYourCalm);
  }
  await stillServes();
});

test('a header list above 64 KiB costs its stream, however small it was packed', async (t) => {
  const { hostile, stillServes, server } = await rig(t);
  const peer = await hostile();
  peer.greet();
  // One entry of 4000 bytes, named forty times by a byte each.
  const field = Buffer.concat([
    Buffer.from([0x40, 1]),
    Buffer.from('a'),
    Buffer.from([0x7f, 0xa1, 0x1e]),
    Buffer.alloc(4_000, 'b'),
  ]);
  const head = Buffer.concat([
    Buffer.from([0x02, 7]),
    Buffer.from('CONNECT'),
    Buffer.from([0x01, 3]),
    Buffer.from('a:1'),
  ]);
  const block = Buffer.concat([head, field, Buffer.alloc(40, 0x80 | 62)]);
  peer.socket.write(rawFrame(1, 4, 1, block));
  await until(() => peer.frames.some(({ type }) => type === 3), { what: 'the reset' });
  t.is(server.tunnels[1]?.streams, 0);
  peer.connect(3, 'a:1');
  await until(() => peer.frames.some(({ type, id }) => type === 1 && id === 3), {
    what: 'an answer',
  });
  await stillServes();
});

// Serial, because the next test measures the memory of the process.
test.serial(
  'unread bytes of stalled streams are bounded by the connection window once they are very many',
  async (t) => {
    const { hostile, stillServes, accepted } = await rig(t);
    const peer = await hostile();
    peer.greet();
    const streams = 40;
    for (let index = 0; index < streams; index += 1) peer.connect(2 * index + 1, 'hold:1');
    await until(() => accepted.length === streams, { what: 'the streams' });
    let credit = 65_535;
    let counted = 0;
    let sent = 0;
    const piece = randomBytes(16_384);
    const room = (): number => {
      for (; counted < peer.frames.length; counted += 1) {
        const frame = peer.frames[counted];
        if (frame?.type === 8 && frame.id === 0) credit += frame.payload.readUInt32BE();
      }
      return credit;
    };
    // Send four MiB on each stream, as far as the connection window allows.
    for (let index = 0; index < streams; index += 1) {
      for (let part = 0; part < 256; part += 1) {
        await until(() => room() >= piece.length || sent > 64 * MIB, {
          timeoutMs: 60_000,
          what: 'window',
        });
        if (room() < piece.length) break;
        credit -= piece.length;
        sent += piece.length;
        if (!peer.socket.write(rawFrame(0, 0, 2 * index + 1, piece))) {
          await new Promise<void>((resolve) => peer.socket.once('drain', () => resolve()));
        }
      }
    }
    t.true(sent > 64 * MIB && sent <= 64 * MIB + 21 * MIB, `${sent} bytes`);
    await stillServes();
    // The bytes were kept, and reading them returns the window.
    for (const stream of accepted) stream.duplex.resume();
    await until(() => room() > 8 * MIB, { timeoutMs: 30_000, what: 'the window to come back' });
  },
);

test.serial('tiny pieces that nobody reads cost little more than their bytes', async (t) => {
  const { hostile, accepted } = await rig(t);
  const peer = await hostile();
  peer.greet();
  peer.connect(1, 'hold:1');
  await until(() => accepted.length === 1, { what: 'the stream' });
  const before = process.memoryUsage().arrayBuffers;
  const tiny = Buffer.concat(
    Array.from({ length: 1_000 }, () => rawFrame(0, 0, 1, Buffer.from('x'))),
  );
  for (let round = 0; round < 400; round += 1) peer.socket.write(tiny);
  peer.socket.write(rawFrame(0, 1, 1));
  const stream = accepted[0];
  t.truthy(stream);
  if (stream === undefined) return;
  t.is((await readAll(stream.duplex)).length, 400_000);
  t.true(process.memoryUsage().arrayBuffers - before < 64 * MIB);
});

// spec: hbone.md §8
test('padding takes nothing of the window of its stream for good', async (t) => {
  const { client, server } = await identities();
  const { port } = await serveTunnels(
    t,
    carriedEngine,
    tunnelOptions(server, { streamWindow: 65_535 }),
    echo,
  );
  const peer = await rawHttp2(t, port, client);
  peer.greet();
  peer.connect(1, 'echo:1');
  // Use up the whole window; the application gets one byte in 257.
  const padded = rawFrame(0, 8, 1, Buffer.concat([Buffer.from([255, 1]), Buffer.alloc(255)]));
  for (let count = 0; count < 255; count += 1) peer.socket.write(padded);
  const givenBack = (): number =>
    peer.frames
      .filter(({ type, id }) => type === 8 && id === 1)
      .reduce((sum, { payload }) => sum + payload.readUInt32BE(), 0);
  await until(() => givenBack() > 48_000, { what: 'the window to come back' });
  t.true(givenBack() <= 65_535);
  const echoed = (): number =>
    peer.frames
      .filter(({ type, id }) => type === 0 && id === 1)
      .reduce((sum, { payload }) => sum + payload.length, 0);
  await until(() => echoed() === 255, { what: 'the content' });
});

test('a peer that reads nothing of its answers is let go', async (t) => {
  const { hostile, server, stillServes } = await rig(t);
  const peer = await hostile();
  peer.greet();
  await until(() => server.tunnels.length === 2, { what: 'its tunnel' });
  peer.socket.pause();
  const pings = Buffer.concat(Array.from({ length: 9_000 }, () => rawFrame(6, 0, 0, EIGHT)));
  peer.socket.write(pings);
  await stillServes();
  peer.socket.destroy();
  t.not(await server.tunnels[1]?.closed, undefined);
});

test('any frames end in a closed tunnel or leave one that still answers', async (t) => {
  const { hostile, stillServes } = await rig(t);
  const anyFrame = fc
    .tuple(
      fc.nat(11),
      fc.nat(255),
      fc.constantFrom(0, 1, 1, 2, 3, 5, 0x7fff_ffff),
      fc.uint8Array({ maxLength: 40 }),
    )
    .map(([type, flags, id, payload]) => rawFrame(type, flags, id, payload));
  const anyInput = fc.oneof(
    fc.array(anyFrame, { maxLength: 20 }).map((frames) => Buffer.concat(frames)),
    fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  );
  await fc.assert(
    fc.asyncProperty(anyInput, fc.boolean(), async (bytes, opened) => {
      const peer = await hostile();
      peer.greet();
      if (opened) peer.connect(1, 'echo:1');
      peer.socket.write(bytes);
      // A truncated frame takes the PING as its content, so the end of the connection counts too.
      peer.socket.end(rawFrame(6, 0, 0, EIGHT));
      await peer.closed;
    }),
    { numRuns: 60 },
  );
  await stillServes();
});

for (const [what, frame] of [
  ['PUSH_PROMISE', rawFrame(5, 4, 1, Buffer.alloc(8))],
  ['HEADERS on a stream of its own', rawFrame(1, 4, 2, Buffer.from([0x88]))],
  ['DATA on a stream nobody opened', rawFrame(0, 0, 9, Buffer.from('x'))],
  ['ENABLE_PUSH', rawFrame(4, 0, 0, Buffer.from([0, 2, 0, 0, 0, 1]))],
  ['no SETTINGS first', rawFrame(6, 0, 0, EIGHT)],
] as const) {
  test(`a client ends a tunnel whose server sends ${what}`, async (t) => {
    const { client, server } = await identities();
    const listener = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (raw) => {
      void acceptStaying(raw, tunnelOptions(server)).then(({ socket }) => {
        socket.resume();
        socket.write(what.startsWith('no ') ? frame : Buffer.concat([rawFrame(4, 0, 0), frame]));
      });
    });
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    t.teardown(() => listener.close());
    const { port } = listener.address() as AddressInfo;
    const tunnel = await openTunnel(t, carriedEngine, port, tunnelOptions(client));
    t.is(await tunnel.closed, 'error');
  });
}

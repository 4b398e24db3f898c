/** Tests how a connection over a tunnel ends, on the application's socket and in frames (docs/decisions/abnormal-ends.md). */
import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import {
  DEFAULT_WINDOW,
  errorCode,
  frameFlag,
  frameType,
  settingId,
  windowUpdateFrame,
} from '../../lib/hbone/session/frames.ts';
import { bidiCopy, socketEnd } from '../../lib/net/bidi-copy.ts';
import type { Copy } from '../../lib/net/bidi-copy.ts';
import { streamEnd } from '../../workers/listener/upstream.ts';
import { rawFrame, rawHttp2, rstStreamFrame } from '../support/raw-http2.ts';
import type { RawHttp2, SeenFrame } from '../support/raw-http2.ts';
import { socketPair } from '../support/socket-pair.ts';
import {
  closedBy,
  readSocketToEnd,
  readToEnd,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import { identities } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

interface Carried {
  /** The other end of the tunnel, which writes frames itself; its stream is number 1. */
  readonly peer: RawHttp2;
  readonly application: Socket;
  /** The other end of the application's socket. */
  readonly near: Socket;
  readonly copy: Copy;
}

/**
 * Carries a connection. `duplex` carries it as a Node stream, like the inner stream of a double tunnel. `window` is the first one that
 * the peer gives the stream.
 */
async function carried(
  t: ExecutionContext,
  duplex = false,
  window = DEFAULT_WINDOW,
): Promise<Carried> {
  const { client, server } = await identities();
  const { near, far: application } = await socketPair(t);
  const { promise: copying, resolve } = Promise.withResolvers<Copy>();
  const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), async (incoming) => {
    const stream = incoming.accept({});
    assert(stream !== null);
    if (duplex) assert(stream.duplex);
    resolve(bidiCopy(streamEnd(stream), socketEnd(near)));
  });
  const peer = await rawHttp2(t, fixture.port, client);
  peer.greet([[settingId.initialWindowSize, window]]);
  peer.connect(1, '10.0.0.1:80');
  return { peer, application, near, copy: await copying };
}

function data(bytes: Uint8Array, flags = 0): Buffer {
  return rawFrame(frameType.data, flags, 1, bytes);
}

function seen({ frames }: RawHttp2, type: number): SeenFrame | undefined {
  return frames.find((frame) => frame.type === type && frame.id === 1);
}

function resetCode(peer: RawHttp2): Promise<number> {
  const found = until(() => seen(peer, frameType.rstStream) ?? null, { what: 'a RST_STREAM' });
  return found.then(({ payload }) => payload.readUInt32BE());
}

// spec: dataplane.md §10, spec: hbone.md §8
for (const duplex of [false, true]) {
  const by = duplex ? 'as a duplex' : 'straight';

  test(`a reset without an END_STREAM resets the application, whatever its code (${by})`, async (t) => {
    for (const [code, error] of [
      [errorCode.noError, /cut the connection/],
      [errorCode.cancel, /cut the connection/],
      [errorCode.internalError, /cut the connection/],
      [errorCode.connectError, null],
      [errorCode.streamClosed, /reset the connection/],
    ] as const) {
      const { peer, application, copy } = await carried(t, duplex);
      peer.socket.write(data(Buffer.from('part')));
      await until(() => copy.counts.fromA === 4, { what: 'the bytes to be passed on' });
      peer.socket.write(rstStreamFrame(1, code));
      t.deepEqual(await readToEnd(application), { bytes: Buffer.from('part'), end: 'reset' });
      const failure = (await copy.done).error;
      if (error === null) t.is(failure, null);
      else t.regex(failure?.message ?? '', error);
    }
  });

  test(`a reset that wants no more after an END_STREAM is a clean end (${by})`, async (t) => {
    for (const code of [errorCode.noError, errorCode.cancel]) {
      const { peer, application, copy } = await carried(t, duplex);
      peer.socket.write(
        Buffer.concat([data(Buffer.from('all'), frameFlag.endStream), rstStreamFrame(1, code)]),
      );
      t.deepEqual(await readToEnd(application), { bytes: Buffer.from('all'), end: 'clean' });
      t.is((await copy.done).error, null);
    }
  });

  test(`a tunnel that dies resets the application (${by})`, async (t) => {
    const { peer, application, copy } = await carried(t, duplex);
    peer.socket.write(data(Buffer.from('part')));
    await until(() => copy.counts.fromA === 4, { what: 'the bytes to be passed on' });
    peer.socket.destroy();
    t.deepEqual(await readToEnd(application), { bytes: Buffer.from('part'), end: 'reset' });
    t.regex((await copy.done).error?.message ?? '', /the tunnel ended before the connection/);
  });

  test(`a reset of the application is one of the stream, and no END_STREAM (${by})`, async (t) => {
    const { peer, application, copy } = await carried(t, duplex);
    application.write('part');
    await until(() => seen(peer, frameType.data), { what: 'the bytes' });
    application.resetAndDestroy();
    t.is(await resetCode(peer), errorCode.connectError);
    const flags = peer.frames.filter(({ type }) => type === frameType.data).map((f) => f.flags);
    t.deepEqual(flags, [0]);
    t.is((await copy.done).error, null);
  });

  test(`an application that is gone after its last word ends the stream cleanly (${by})`, async (t) => {
    const { peer, application, copy } = await carried(t, duplex);
    application.end('all');
    const ends = ({ type, flags }: SeenFrame): boolean =>
      type === frameType.data && flags === frameFlag.endStream;
    await until(() => peer.frames.some(ends), { what: 'the END_STREAM' });
    application.resetAndDestroy();
    peer.socket.write(data(Buffer.alloc(8_192)));
    t.is(await resetCode(peer), errorCode.noError);
    t.is((await copy.done).error, null);
  });

  test(`an application that closes before it has read all has its answer passed on whole (${by})`, async (t) => {
    // The tunnel takes nothing yet: the answer waits in the kernel.
    const { peer, application, near, copy } = await carried(t, duplex, duplex ? undefined : 0);
    near.pause();
    const answer = Buffer.alloc(32_768, 'a');
    application.write(answer);
    application.destroy();
    await closedBy(application);
    // The kernel answers the first write by a reset, and refuses the second.
    peer.socket.write(data(Buffer.from('x')));
    await until(() => copy.counts.fromA === 1, { what: 'the byte to be taken in' });
    peer.socket.write(data(Buffer.from('x')));
    if (duplex) await until(() => copy.counts.fromA === 2, { what: 'the byte to be taken in' });
    else peer.socket.write(windowUpdateFrame(1, answer.length));
    t.is(await resetCode(peer), errorCode.noError);
    const frames = peer.frames.filter(({ type }) => type === frameType.data);
    t.true(Buffer.concat(frames.map(({ payload }) => payload)).equals(answer));
    t.is(frames.at(-1)?.flags, frameFlag.endStream);
    t.is((await copy.done).error, null);
    t.is(copy.counts.fromB, answer.length);
  });

  test(`a cut resets both ends (${by})`, async (t) => {
    const { peer, application, copy } = await carried(t, duplex);
    application.pause();
    peer.socket.write(data(Buffer.alloc(16_384)));
    await until(() => copy.counts.fromA === 16_384, { what: 'the bytes to be taken in' });
    copy.abort();
    t.is(await resetCode(peer), errorCode.internalError);
    t.is((await readToEnd(application)).end, 'reset');
    t.is((await copy.done).error, null);
  });
}

test('bytes that arrive together with a reset reach the application before it', async (t) => {
  const { peer, application, copy } = await carried(t);
  const heard = readSocketToEnd(application);
  // Large enough to be gathered, and one TLS record together with the reset.
  const page = Buffer.alloc(8_192, 'p');
  peer.socket.write(Buffer.concat([data(page), rstStreamFrame(1, errorCode.connectError)]));
  t.deepEqual(await heard, { bytes: page, end: 'reset' });
  t.is((await copy.done).error, null);
  t.is(copy.counts.fromA, page.length);
});

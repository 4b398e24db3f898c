/** Part of the engine contract: malformed frames on an undecided request. A request that is answered at once cannot show the effect. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { TestFn } from 'ava';
import { errorCode } from '../../lib/hbone/session/frames.ts';
import type { HboneEngine } from '../../lib/hbone/engine.ts';
import { HpackEncoder } from '../../lib/hbone/session/hpack-encoder.ts';
import { rawFrame, rawHttp2 } from '../support/raw-http2.ts';
import {
  echo,
  openTunnel,
  readAll,
  request,
  roundTrip,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import { identities } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';
import { acceptStaying } from '../support/staying-tls.ts';

const HOLD = 'hold:1';
const POST = [
  [':method', 'POST'],
  [':scheme', 'https'],
  [':path', '/'],
  [':authority', HOLD],
] as const;
const END_STREAM = 0x1;
const END_HEADERS = 0x4;

function headers(flags: number, ...fields: (readonly [string, string])[]): Buffer {
  return rawFrame(1, flags, 1, new HpackEncoder().encode(fields));
}

/** The frames after the header block of a POST, and its further headers. */
const CASES = [
  ['a second header block that does not end the stream', [], [headers(END_HEADERS, ['x-a', '1'])]],
  ['trailers with a pseudo header', [], [headers(END_HEADERS | END_STREAM, [':method', 'POST'])]],
  [
    'content that is not as long as it was said',
    [['content-length', '1']],
    [rawFrame(0, END_STREAM, 1, Buffer.from('test'))],
  ],
  [
    'parts of content that are not as long as was said',
    [['content-length', '9']],
    [rawFrame(0, 0, 1, Buffer.from('test')), rawFrame(0, END_STREAM, 1, Buffer.from('test'))],
  ],
] as const;

export function malformed(test: TestFn, engine: HboneEngine): void {
  for (const [what, said, frames] of CASES) {
    // spec: hbone.md §8
    test(`${what} costs an undecided request, at most its tunnel, and no other`, async (t) => {
      const { client, server } = await identities();
      const { promise: decided, resolve: decide } = Promise.withResolvers<void>();
      t.teardown(decide);
      let held = 0;
      const fixture = await serveTunnels(t, engine, tunnelOptions(server), async (incoming) => {
        if (incoming.authority !== HOLD) return echo(incoming);
        held += 1;
        await decided;
        incoming.refuse(503);
      });
      const peer = await rawHttp2(t, fixture.port, client);
      peer.greet();
      peer.request(1, [...POST, ...said]);
      await until(() => held === 1, { what: 'the request to be asked about' });
      peer.socket.write(Buffer.concat(frames));
      const reset = (): boolean =>
        peer.frames.some(
          ({ type, id, payload }) =>
            type === 3 && id === 1 && payload.readUInt32BE(0) === errorCode.protocolError,
        );
      // node:http2 ends the whole tunnel in one of the cases.
      await until(() => reset() || peer.goaway !== null, { what: 'its end' });
      const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
      t.is((await roundTrip(await tunnel.open(request), 'fine')).toString(), 'fine');
    });
  }

  // spec: RFC 9113 §5.1, closed
  test('HEADERS after the reset of the peer are refused, even when ours came first', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const peer = await rawHttp2(t, fixture.port, client);
    peer.greet();
    const resets = (): readonly number[] =>
      peer.frames
        .filter(({ type, id }) => type === 3 && id === 1)
        .map(({ payload }) => payload.readUInt32BE(0));
    const again = headers(END_HEADERS, ...POST);
    peer.request(1, POST);
    // Its second header block does not end the stream.
    peer.socket.write(again);
    await until(() => resets().length === 1, { what: 'the reset of this side' });
    const cancel = Buffer.alloc(4);
    cancel.writeUInt32BE(errorCode.cancel);
    peer.socket.write(Buffer.concat([rawFrame(3, 0, 1, cancel), again]));
    await until(() => resets().length === 2, { what: 'the refusal' });
    t.is(resets()[1], errorCode.streamClosed);
    t.is(peer.goaway, null);
  });

  // spec: hbone.md §8
  test('DATA before the final answer costs its request, and no other', async (t) => {
    const { client, server } = await identities();
    const { promise: accepted, resolve } = Promise.withResolvers<TLSSocket>();
    const listener = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (raw) => {
      void acceptStaying(raw, tunnelOptions(server)).then(({ socket }) => resolve(socket));
    });
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    t.teardown(() => listener.close());
    const { port } = listener.address() as AddressInfo;
    const tunnel = await openTunnel(t, engine, port, tunnelOptions(client));
    const socket = await accepted;
    t.teardown(() => socket.destroy());
    socket.resume();
    const first = tunnel.open(request);
    const second = tunnel.open(request);
    // The answer may be known before the content that came too early.
    const third = tunnel.open(request).then(({ duplex }) => readAll(duplex));
    const [early, interrupted] = [
      t.throwsAsync(first, { code: 'TUNNEL_RESET' }),
      t.throwsAsync(third),
    ];
    const encoder = new HpackEncoder();
    const answer = encoder.encode([[':status', '200']]);
    const interim = encoder.encode([[':status', '103']]);
    const frames = [
      rawFrame(4, 0, 0),
      rawFrame(0, 0, 1, Buffer.from('early')),
      rawFrame(1, END_HEADERS, 3, answer),
      rawFrame(0, END_STREAM, 3, Buffer.from('in time')),
      rawFrame(1, END_HEADERS, 5, interim),
      rawFrame(0, 0, 5, Buffer.from('early')),
      rawFrame(1, END_HEADERS, 5, answer),
      rawFrame(0, END_STREAM, 5, Buffer.from('late')),
    ];
    // In a later turn, when the requests are on their way.
    setImmediate(() => socket.write(Buffer.concat(frames)));
    const { duplex } = await second;
    t.is((await readAll(duplex)).toString(), 'in time');
    await early;
    await interrupted;
  });
}

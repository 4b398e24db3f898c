/**
 * Tests misbehaving peers with a certificate of the mesh against a real listener. Their tunnel may end, others are not
 * affected, and memory and descriptors are released.
 */
import { readdirSync } from 'node:fs';
import { frameFlag, frameType, settingId, settingsFrame } from '../../lib/hbone/session/frames.ts';
import { Arena, repeat, streamId } from '../support/hostile-arena.ts';
import { connectFrame, frame, headerBlock } from '../support/hostile-peer.ts';
import type { HostilePeer, HostilePeerOptions } from '../support/hostile-peer.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { rstStreamFrame } from '../support/raw-http2.ts';
import { until } from '../support/until.ts';

const MIB = 1_048_576;

/**
 * The growth of the process that the attacks may cause, attackers included. It is 30 to 170 MiB when the collector gets its turn
 * and up to 280 MiB when a busy machine delays it. Without bounds the growth would go on.
 */
const GROWTH_BYTES = 640 * MIB;

/** The attacks by name; `ends` is true when the tunnel must not survive. */
const ATTACKS: Readonly<
  Record<
    string,
    {
      readonly ends: boolean;
      readonly options?: HostilePeerOptions;
      readonly run: (peer: HostilePeer, at: Arena) => Promise<void>;
    }
  >
> = {
  'a preface that never comes': {
    ends: true,
    options: { preface: false },
    run: async () => {},
  },
  'CONNECT flood': {
    ends: false,
    run: (peer, { authority }) =>
      peer.send(repeat(3_000, (n) => connectFrame(streamId(n), authority))),
  },
  'rapid reset': {
    // node:http2 reads them so slowly that they may stay within the limit of abandoned requests.
    ends: true,
    run: (peer, { authority }) =>
      peer.send(
        repeat(8_000, (n) =>
          Buffer.concat([connectFrame(streamId(n), authority), rstStreamFrame(streamId(n), 8)]),
        ),
      ),
  },
  'a window that never opens': {
    ends: false,
    options: { settings: [[settingId.initialWindowSize, 0]] },
    run: (peer, { web }) =>
      peer.send(repeat(100, (n) => connectFrame(streamId(n), `${web.ip}:9090`))),
  },
  'headers beyond the limit': {
    ends: false,
    run: (peer, { authority }) => {
      const block = headerBlock([
        [':method', 'CONNECT'],
        [':authority', authority],
        ['x-large', 'x'.repeat(15_000)],
      ]);
      return peer.send(
        repeat(200, (n) => frame(frameType.headers, frameFlag.endHeaders, streamId(n), block)),
      );
    },
  },
  'CONTINUATION flood': {
    ends: true,
    run: (peer, { authority }) => {
      const block = headerBlock([[':authority', authority]]);
      const more = frame(frameType.continuation, 0, 1, headerBlock([['x', 'y'.repeat(1_000)]]));
      return peer.send([frame(frameType.headers, 0, 1, block), ...repeat(50_000, () => more)]);
    },
  },
  'SETTINGS flood, answers unread': {
    ends: false,
    options: { read: false },
    run: (peer) =>
      peer.send(repeat(400_000, () => settingsFrame([[settingId.maxFrameSize, 16_384]]))),
  },
  'PING flood, answers unread': {
    ends: false,
    options: { read: false },
    run: (peer) => peer.send(repeat(400_000, () => frame(frameType.ping, 0, 0, Buffer.alloc(8)))),
  },
  'empty DATA flood': {
    ends: false,
    run: (peer, { authority }) =>
      peer.send([
        connectFrame(1, authority),
        ...repeat(100_000, () => frame(frameType.data, 0, 1)),
      ]),
  },
};

// spec: hbone.md §8
test('misbehaving peers cost their own tunnels and nobody else', async (t) => {
  const at = await Arena.start(t);
  await at.neighbourGoesOn('peace');
  const descriptors = (): number => readdirSync('/proc/self/fd').length;
  const before = { descriptors: descriptors(), rss: process.memoryUsage.rss() };
  for (const [name, { ends, options, run }] of Object.entries(ATTACKS)) {
    const peer = await at.attack(options);
    const sent = run(peer, at);
    await at.neighbourGoesOn(name);
    const growth = process.memoryUsage.rss() - before.rss;
    t.true(growth < GROWTH_BYTES, `${name}: ${Math.round(growth / MIB)} MiB`);
    if (ends) await until(() => peer.ended, { what: `${name} to cost its tunnel` });
    await at.neighbourGoesOn(`the end of ${name}`);
    peer.socket.destroy();
    await sent;
    await until(async () => (await at.mesh.connections()).length <= 2, {
      what: `the connections of ${name} to end`,
      timeoutMs: 20_000,
    });
  }
  t.is(await at.endNeighbour(), null);
  await until(() => descriptors() <= before.descriptors + 8, {
    what: 'the descriptors to come back',
    timeoutMs: 20_000,
  });
});

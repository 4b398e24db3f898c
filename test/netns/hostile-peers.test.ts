/**
 * Tests misbehaving peers with a certificate of the mesh against a real listener. Their tunnel may end, others are not
 * affected, and memory and descriptors are released.
 */
import { readdirSync } from 'node:fs';
import type { ExecutionContext } from 'ava';
import {
  frameFlag,
  frameType,
  rstStreamFrame,
  settingId,
  settingsFrame,
} from '../../lib/hbone/engine-framing/frames.ts';
import { connectFrame, frame, headerBlock, hostilePeer } from '../support/hostile-peer.ts';
import type { HostilePeer } from '../support/hostile-peer.ts';
import { TestMesh } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { readAll } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';

const EVIL = 'spiffe://cluster.local/ns/demo/sa/evil';
const MIB = 1_048_576;

/**
 * The growth of the process that the attacks may cause, attackers included. It is 30 to 170 MiB when the collector gets its turn
 * and up to 280 MiB when a busy machine delays it. Without bounds the growth would go on.
 */
const GROWTH_BYTES = 640 * MIB;

interface Arena {
  readonly mesh: TestMesh;
  readonly evil: TestPod;
  readonly web: TestPod;
  readonly authority: string;
  /** The neighbour's successful requests so far. */
  readonly served: { count: number };
  /** Stops the neighbour; resolves with its failure, null when there was none. */
  endNeighbour(): Promise<unknown>;
  attack(options?: Parameters<typeof hostilePeer>[2]): Promise<HostilePeer>;
}

async function arena(t: ExecutionContext): Promise<Arena> {
  const mesh = await TestMesh.start(t, { threads: 1, handshakeTimeoutMs: 4_000 });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web');
  const evil = await mesh.addPod('evil', { enrolled: false });
  await web.serve(8080, (socket) => socket.pipe(socket));
  await web.serve(9090, (socket) => {
    socket.write(Buffer.alloc(4 * MIB));
    socket.resume().once('end', () => socket.destroy());
  });
  const served = { count: 0 };
  const neighbour = { on: true };
  const loop = (async (): Promise<null> => {
    while (neighbour.on) {
      const socket = await client.connect(web.ip, 8080);
      const text = `request ${served.count}`;
      socket.end(text);
      const answer = (await readAll(socket)).toString();
      if (answer !== text) throw new Error(`the neighbour got ${JSON.stringify(answer)}`);
      served.count += 1;
    }
    return null;
  })().catch((error: unknown) => error);
  const own = await mesh.credentials(EVIL);
  return {
    mesh,
    evil,
    web,
    authority: `${web.ip}:8080`,
    served,
    endNeighbour: () => {
      neighbour.on = false;
      return loop;
    },
    attack: async (options) => hostilePeer(await evil.connect(web.ip, 15_008), own, options),
  };
}

/** Waits until the neighbour has finished some more requests. */
async function neighbourGoesOn({ served }: Arena, what: string): Promise<void> {
  const from = served.count;
  await until(() => served.count >= from + 3, {
    what: `the neighbour during ${what}`,
    timeoutMs: 30_000,
  });
}

function repeat(count: number, make: (n: number) => Buffer): Buffer[] {
  // Write in pieces, so that the event loop of the test goes on.
  const pieces: Buffer[] = [];
  for (let from = 0; from < count; from += 500) {
    const length = Math.min(500, count - from);
    pieces.push(Buffer.concat(Array.from({ length }, (_, n) => make(from + n))));
  }
  return pieces;
}

const streamId = (n: number): number => 2 * n + 1;

/** The attacks by name; `ends` is true when the tunnel must not survive. */
const ATTACKS: Readonly<
  Record<
    string,
    {
      readonly ends: boolean;
      readonly options?: Parameters<typeof hostilePeer>[2];
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
  const at = await arena(t);
  await neighbourGoesOn(at, 'peace');
  const descriptors = (): number => readdirSync('/proc/self/fd').length;
  const before = { descriptors: descriptors(), rss: process.memoryUsage.rss() };
  for (const [name, { ends, options, run }] of Object.entries(ATTACKS)) {
    const peer = await at.attack(options);
    const sent = run(peer, at);
    await neighbourGoesOn(at, name);
    const growth = process.memoryUsage.rss() - before.rss;
    t.true(growth < GROWTH_BYTES, `${name}: ${Math.round(growth / MIB)} MiB`);
    if (ends) await until(() => peer.ended, { what: `${name} to cost its tunnel` });
    await neighbourGoesOn(at, `the end of ${name}`);
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

/** A copy over a stream of node:http2 whose client goes while the answer waits for it. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { http2Engine } from '../../lib/hbone/engine-http2/engine.ts';
import type { ClientTunnel, TunnelStream } from '../../lib/hbone/engine.ts';
import { bidiCopy } from '../../lib/net/bidi-copy.ts';
import type { Copy } from '../../lib/net/bidi-copy.ts';
import { UNACCOUNTED } from '../../lib/net/held-bytes.ts';
import type { ByteAccount } from '../../lib/net/held-bytes.ts';
import { socketEnd, streamEnd } from '../../workers/listener/upstream.ts';
import { socketPair } from '../support/socket-pair.ts';
import { MIB, openTunnel, request, serveTunnels, tunnelOptions } from '../support/tunnel-kit.ts';
import { CLIENT, SERVER, createTunnelPki, credentials } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

/** Of a pod that holds too much. */
const PRESSED: ByteAccount = { ...UNACCOUNTED, pressed: true };

/** Looks that find nothing moved, until the client's side counts as full. */
const STILL_LOOKS = 5;

interface Copied {
  readonly tunnel: ClientTunnel;
  readonly stream: TunnelStream;
  /** The application's end of the stream. */
  readonly server: Duplex;
  /** The client's socket, which nobody reads, and the copy's own towards it. */
  readonly client: Socket;
  readonly near: Socket;
  readonly copy: Copy;
}

async function copied(t: ExecutionContext, bytes = UNACCOUNTED): Promise<Copied> {
  const pki = await createTunnelPki();
  const { promise: served, resolve } = Promise.withResolvers<Duplex>();
  const { port } = await serveTunnels(
    t,
    http2Engine,
    tunnelOptions(credentials(await pki.issue(SERVER))),
    (incoming) => {
      const duplex = incoming.accept({})?.duplex;
      duplex?.on('error', () => {});
      if (duplex !== undefined) resolve(duplex.resume());
      return Promise.resolve();
    },
  );
  const own = tunnelOptions(credentials(await pki.issue(CLIENT)));
  const tunnel = await openTunnel(t, http2Engine, port, own);
  const stream = await tunnel.open(request);
  const { near, far: client } = await socketPair(t);
  client.pause();
  const copy = bidiCopy(socketEnd(near), streamEnd(stream), bytes);
  return { tunnel, stream, server: await served, client, near, copy };
}

/** Sends until the client's side takes no more and the copy has stopped reading. */
async function fill({ stream, server, near, copy }: Copied): Promise<void> {
  let looks = 0;
  let before = 0;
  const isFull = (): boolean => {
    const { fromB } = copy.counts;
    const still = stream.duplex.isPaused() && near.writableLength > 0 && fromB === before;
    looks = still ? looks + 1 : 0;
    before = fromB;
    return looks >= STILL_LOOKS;
  };
  for (let sent = MIB; ; sent += MIB) {
    server.write(Buffer.alloc(MIB));
    const seen = (): 'full' | 'read' | null => {
      if (isFull()) return 'full';
      return copy.counts.fromB === sent ? 'read' : null;
    };
    if ((await until(seen, { what: 'the bytes to be read' })) === 'full') return;
  }
}

/** Ends the answer; all of it has come and waits. */
async function answered(t: ExecutionContext, { server, tunnel }: Copied): Promise<void> {
  const sent = once(server, 'finish');
  server.end(Buffer.alloc(65_536));
  await sent;
  t.true(await tunnel.probe(120_000), 'what was sent before has come');
}

async function assertOver(t: ExecutionContext, { copy, tunnel }: Copied): Promise<void> {
  t.is((await copy.done).error, null);
  await until(() => tunnel.streams === 0, { what: 'the end of the stream' });
}

test('a copy ends when its client goes in the middle of an answer it does not read', async (t) => {
  const all = await copied(t);
  await fill(all);
  // More than the stream's window: the answer does not end by itself.
  all.server.write(Buffer.alloc(16 * MIB));
  all.client.resetAndDestroy();
  await assertOver(t, all);
});

test('a copy ends when its client goes and has not read an answer that has ended', async (t) => {
  const all = await copied(t);
  await fill(all);
  await answered(t, all);
  all.client.resetAndDestroy();
  await assertOver(t, all);
});

test('a copy under memory pressure ends likewise, and counts nothing that came after its client', async (t) => {
  const all = await copied(t, PRESSED);
  await fill(all);
  await answered(t, all);
  const gone = new Promise<number>((resolve) => {
    all.near.once('close', () => resolve(all.copy.counts.fromB));
  });
  all.client.resetAndDestroy();
  const counted = await gone;
  await assertOver(t, all);
  t.is(all.copy.counts.fromB, counted);
});

test('a copy ends when its client goes after both sides have ended, and has not read the answer', async (t) => {
  const all = await copied(t);
  const asked = once(all.server, 'end');
  all.client.end('question');
  await asked;
  await fill(all);
  all.server.end(Buffer.alloc(65_536));
  await until(() => all.stream.duplex.closed, { what: 'the end of both sides' });
  all.client.resetAndDestroy();
  await assertOver(t, all);
});

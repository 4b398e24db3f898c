/** Runs the contract on the framing engine without reads into its own buffers: all bytes arrive by `data` events. */
import { randomBytes } from 'node:crypto';
import { Socket } from 'node:net';
import test from 'ava';
import type { TunnelStream } from '../../lib/hbone/engine.ts';
import { socketPair } from '../support/socket-pair.ts';
import {
  MIB,
  openTunnel,
  readAll,
  request,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import { identities } from '../support/tunnel-pki.ts';

/** Hides the symbols that lib/net/read-into.ts looks for when it is loaded. */
const symbolsOf = Object.getOwnPropertySymbols;
Object.getOwnPropertySymbols = (of: object) =>
  symbolsOf(of).filter(({ description }) => !description?.startsWith('kBuffer'));
const { readInto } = await import('../../lib/net/read-into.ts');
const { framingEngine } = await import('../../lib/hbone/engine-framing/engine.ts');
const { engineContract } = await import('./hbone-engine.ts');
Object.getOwnPropertySymbols = symbolsOf;

test('the way without buffers is the one that is taken', async (t) => {
  const { near } = await socketPair(t);
  t.true(near instanceof Socket);
  t.false(readInto(near, { buffer: Buffer.alloc(16), take: () => true }));
});

test('sockets are carried both ways, bulk and half-closed, and nobody is read faster than the other takes it', async (t) => {
  const { client, server } = await identities();
  const application = await socketPair(t);
  const fixture = await serveTunnels(t, framingEngine, tunnelOptions(server), (incoming) => {
    incoming.accept({})?.carry?.(application.near, 'b');
    return Promise.resolve();
  });
  const tunnel = await openTunnel(t, framingEngine, fixture.port, tunnelOptions(client));
  const { near, far } = await socketPair(t);
  const stream: TunnelStream = await tunnel.open(request);
  const copy = stream.carry?.(near, 'a');
  if (copy === null || copy === undefined) throw new Error('the stream is in use');
  const bytes = randomBytes(12 * MIB);
  far.end(bytes);
  // Nothing reads yet: the windows and the system's buffers bound the bytes in flight.
  const all = await readAll(application.far);
  t.true(all.equals(bytes));
  const back = randomBytes(5 * MIB);
  application.far.end(back);
  t.true((await readAll(far)).equals(back));
  t.deepEqual(await copy.done, { error: null });
  t.deepEqual([copy.counts.fromA, copy.counts.fromB], [bytes.length, back.length]);
});

engineContract(test, framingEngine);

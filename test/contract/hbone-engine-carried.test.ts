/** Runs the contract on the engine whose bytes native threads carry. */
import { randomBytes } from 'node:crypto';
import test from 'ava';
import { carriedEngine } from '../../lib/hbone/engine-carried/engine.ts';
import { carryStats } from '../../lib/linux/carry.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';
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
import { until } from '../support/until.ts';
import { engineContract } from './hbone-engine.ts';

// Before the others, whose links would be counted too.
test.serial(
  'sockets are joined natively, and nothing of a tunnel is left at its end',
  async (t) => {
    const { client, server } = await identities();
    const application = await socketPair(t);
    const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), (incoming) => {
      incoming.accept({})?.carry?.(new RawSocket(application.near), 'b');
      return Promise.resolve();
    });
    const tunnel = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
    const { near, far } = await socketPair(t);
    const stream = await tunnel.open(request);
    const copy = stream.carry?.(new RawSocket(near), 'a');
    if (copy === null || copy === undefined) throw new Error('the stream is in use');
    t.like(carryStats(), { links: 2, streams: 2 });
    const up = randomBytes(12 * MIB);
    const down = randomBytes(5 * MIB);
    far.end(up);
    application.far.end(down);
    const [got, back] = await Promise.all([readAll(application.far), readAll(far)]);
    t.true(got.equals(up));
    t.true(back.equals(down));
    t.deepEqual(await copy.done, { error: null });
    t.deepEqual([copy.counts.fromA, copy.counts.fromB], [up.length, down.length]);
    tunnel.destroy();
    await until(() => carryStats().links === 0, { what: 'both links to end' });
    t.is(carryStats().streams, 0);
  },
);

engineContract(test, carriedEngine);

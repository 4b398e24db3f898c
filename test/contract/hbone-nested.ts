/** The part of the engine contract for tunnels on a stream of another tunnel. */
import { randomBytes } from 'node:crypto';
import type { TestFn } from 'ava';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { HboneEngine } from '../../lib/hbone/engine.ts';
import {
  MIB,
  dial,
  echo,
  openTunnel,
  request,
  roundTrip,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import { identities } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

export function nested(test: TestFn, engine: HboneEngine): void {
  // spec: hbone.md §10
  test('a tunnel runs inside a stream of another, ends with it, and is ended without harm to it', async (t) => {
    const { client, server } = await identities();
    const inner = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const gateway = await serveTunnels(t, engine, tunnelOptions(server), async (incoming) => {
      const opaque = await dial(t, inner.port);
      const stream = incoming.accept({});
      opaque.on('error', () => stream?.reset());
      stream?.duplex.pipe(opaque).pipe(stream.duplex);
    });
    const outer = await openTunnel(t, engine, gateway.port, tunnelOptions(client));
    const open = async () => {
      const carrier = await outer.open(request);
      // Both tunnels ping. Only the inner ping shows that the far end is alive; the gateway cannot answer it.
      const tunnel = await engine.connect(
        carrier.toSocket().socket,
        tunnelOptions(client, { pingIntervalMs: 20 }),
      );
      t.teardown(() => tunnel.destroy());
      return { carrier, tunnel };
    };
    const first = await open();
    const bytes = randomBytes(3 * MIB);
    t.true((await roundTrip(await first.tunnel.open(request), bytes)).equals(bytes));
    await until(() => first.tunnel.counters.pingsAnswered > 0, { what: 'a ping of the inner one' });
    first.tunnel.destroy();
    await until(() => outer.streams === 0, { timeoutMs: 10_000, what: 'the carrier to end' });
    const second = await open();
    second.carrier.reset();
    await second.tunnel.closed;
    t.true(outer.usable);
    const refused = engine.connect((await outer.open(request)).toSocket().socket, {
      ...tunnelOptions(client),
      verifyPeer: () => {
        throw new Error('not this one');
      },
    });
    await t.throwsAsync(refused, { message: /not this one/ });
    await until(() => outer.streams === 0, { timeoutMs: 10_000, what: 'the carriers to end' });
    const gone = await outer.open(request);
    gone.reset();
    t.throws(() => gone.toSocket(), { code: 'TUNNEL_RESET' });
    const { onOver } = (await outer.open(request)).toSocket();
    const over: (Error | null)[] = [];
    onOver((error) => over.push(error));
    const reason = new MeshError('TLS_PEER_REVOKED', 'the gateway is revoked');
    outer.destroy(reason);
    await until(() => over.length > 0, { what: 'the end of the carrier' });
    onOver((error) => over.push(error));
    t.deepEqual(over, [reason, reason]);
  });
}

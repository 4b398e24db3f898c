/** Part of the engine contract: how tunnels drain and end, and how dead ones are detected. */
import { randomBytes } from 'node:crypto';
import type { TestFn } from 'ava';
import type { HboneEngine } from '../../lib/hbone/engine.ts';
import {
  closedBy,
  dial,
  echo,
  openTunnel,
  request,
  roundTrip,
  serveTunnels,
} from '../support/tunnel-kit.ts';
import { MIB, tunnelOptions } from '../support/tunnel-kit.ts';
import { CLIENT, SERVER, createTunnelPki, credentials, identities } from '../support/tunnel-pki.ts';
import { rawClient } from '../support/raw-tls.ts';
import { until } from '../support/until.ts';

export function lifetimes(test: TestFn, engine: HboneEngine): void {
  // spec: hbone.md §8
  test('a draining server finishes its streams and takes no new ones', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const stream = await tunnel.open(request);
    fixture.tunnels[0]?.drain();
    await until(() => !tunnel.usable, { timeoutMs: 5_000, what: 'the GOAWAY' });
    await t.throwsAsync(tunnel.open(request), { code: 'TUNNEL_CLOSED' });
    t.is(tunnel.capacity, 0);
    const bytes = randomBytes(MIB);
    t.true((await roundTrip(stream, bytes)).equals(bytes));
    await tunnel.closed;
    t.is(await fixture.tunnels[0]?.closed, 'drained');
  });

  test('an idle tunnel that drains closes', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    await roundTrip(await tunnel.open(request), 'x');
    tunnel.drain();
    t.is(await tunnel.closed, 'drained');
    await fixture.tunnels[0]?.closed;
  });

  test('a destroyed tunnel resets its streams', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const stream = await tunnel.open(request);
    const gone = closedBy(stream.duplex);
    fixture.tunnels[0]?.destroy();
    await gone;
    await tunnel.closed;
    t.is(await fixture.tunnels[0]?.closed, 'destroyed');
  });

  // Serial, so that no other test waits meanwhile.
  test.serial(
    'a tunnel drains when its certificate expires, and what it carries goes on',
    async (t) => {
      const pki = await createTunnelPki();
      const server = credentials(await pki.issue(SERVER));
      const client = credentials(await pki.issue(CLIENT, { lifeMs: 10_000 }));
      const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
      const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
      const stream = await tunnel.open(request);
      await until(() => !tunnel.usable, { timeoutMs: 30_000, what: 'the tunnel to retire' });
      t.is((await roundTrip(stream, 'carried')).toString(), 'carried');
      await tunnel.closed;
    },
  );

  // spec: hbone.md §8
  test.serial('both ends ping, and a peer that stops answering is dropped', async (t) => {
    const { client, server } = await identities();
    // A busy machine may delay an honest peer; only a silent one stays silent for five seconds.
    const quick = { pingIntervalMs: 50, pingTimeoutMs: 5_000 };
    const fixture = await serveTunnels(t, engine, tunnelOptions(server, quick), echo);
    const socket = await dial(t, fixture.port);
    const tunnel = await engine.connect(socket, tunnelOptions(client, quick));
    t.teardown(() => tunnel.destroy());
    await until(
      () =>
        tunnel.counters.pingsAnswered >= 2 &&
        (fixture.tunnels[0]?.counters.pingsAnswered ?? 0) >= 2,
      { timeoutMs: 10_000, what: 'pings both ways' },
    );
    const silent = await rawClient(t, fixture.port, client);
    silent.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u0004\0\0\0\0\0');
    silent.resume();
    await until(() => fixture.tunnels.length === 2, { timeoutMs: 20_000, what: 'the silent peer' });
    t.is(await fixture.tunnels[1]?.closed, 'ping-timeout');
  });

  test('a probe finds a peer alive or ends the tunnel', async (t) => {
    const { client, server } = await identities();
    const fixture = await serveTunnels(t, engine, tunnelOptions(server), echo);
    const tunnel = await openTunnel(t, engine, fixture.port, tunnelOptions(client));
    const stream = await tunnel.open(request);
    const probes = Array.from({ length: 20 }, () => tunnel.probe(20_000));
    t.deepEqual(new Set(await Promise.all(probes)), new Set([true]));
    t.is((await roundTrip(stream, 'carried')).toString(), 'carried');
    const silent = await rawClient(t, fixture.port, client);
    silent.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u0004\0\0\0\0\0');
    silent.resume();
    await until(() => fixture.tunnels.length === 2, { timeoutMs: 20_000, what: 'the silent peer' });
    const served = fixture.tunnels[1];
    t.is(await served?.probe(200), false);
    t.is(await served?.closed, 'ping-timeout');
    t.is(await served?.probe(200), false);
  });
}

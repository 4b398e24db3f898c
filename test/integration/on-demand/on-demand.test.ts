/** The mesh state on demand: node-proxies ask by way of Redis, an ingester asks the control plane (docs/decisions/on-demand.md). */
import { once } from 'node:events';
import test from 'ava';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { createOnDemandKit } from '../../support/on-demand-kit.ts';
import { until } from '../../support/until.ts';

const WEB_POD = 'Kubernetes//Pod/demo/web-1';
const WEB = 'demo/web.demo.svc.cluster.local';

test.serial(
  'an address is known once it was asked for, with what belongs to it, and nothing else is',
  async (t) => {
    const kit = await createOnDemandKit(t);
    await kit.ingester();
    const node = await kit.node('node-1');
    t.deepEqual([...kit.addresses.rows.keys()], []);
    t.is(await node.at('10.96.0.10'), 'demo/web');
    t.deepEqual([...kit.addresses.rows.keys()].sort(), [WEB_POD, WEB]);
    const key = { kind: 'address', network: '', ip: '10.96.0.10' } as const;
    t.is(node.client.get(key)?.services[0]?.endpoints.size, 1, 'the service has its endpoint');
    t.is(await node.at('10.0.2.1'), 'demo/web-1');
    t.is(await node.at('192.0.2.1'), null, 'the control plane knows nothing there');
    t.false(kit.addresses.rows.has('Kubernetes//Pod/demo/alone'));

    // Another node holds what this one asked for, and asks for more.
    const other = await kit.node('node-2');
    t.is(await other.at('10.96.0.10'), 'demo/web');
    t.is(await other.at('10.0.3.1'), 'demo/alone');

    // A new workload takes an address that was known to be free.
    await kit.plane.api.run('demo', 'alone', ['192.0.2.1']);
    await until(async () => (await node.at('192.0.2.1')) === 'demo/alone', {
      what: 'the workload at its new address',
      timeoutMs: 20_000,
    });
    await until(async () => (await node.at('10.0.3.1')) === null, {
      what: 'the old address to be free',
    });
  },
);

test.serial(
  'a lookup waits for an ingester that was killed, and goes on with its standby',
  async (t) => {
    const kit = await createOnDemandKit(t);
    const leader = await kit.ingester();
    const node = await kit.node('node-1');
    t.is(await node.at('10.96.0.10'), 'demo/web');
    await kit.ingester({ POD_NAME: 'standby' });
    const asked = node.at('10.0.3.1');
    leader.kill('SIGKILL');
    await once(leader, 'exit');
    // The request may have been answered before the kill; the next one is not.
    t.is(await asked, 'demo/alone');
    t.is(await node.at('192.0.2.7').catch(() => node.at('192.0.2.7')), null);
    t.is(await node.at('10.96.0.10'), 'demo/web', 'the names were taken over');
    await kit.plane.api.run('demo', 'web-1', ['10.0.2.9']);
    await until(async () => (await node.at('10.0.2.9')) === 'demo/web-1', {
      what: 'changes after the takeover',
      timeoutMs: 20_000,
    });
  },
);

test.serial(
  'an unknown address fails closed while Redis or the ingester is away; a known one goes on',
  async (t) => {
    const kit = await createOnDemandKit(t);
    const ingester = await kit.ingester();
    const node = await kit.node('node-1', { waitMs: 300 });
    await until(() => node.at('10.96.0.10').catch(() => null), { what: 'the service' });
    ingester.kill('SIGKILL');
    await once(ingester, 'exit');
    const refused = await t.throwsAsync(node.at('10.0.3.1'), { instanceOf: MeshError });
    t.is(refused.code, 'STATE_UNAVAILABLE');
    await kit.redis.kill();
    const alone = await t.throwsAsync(node.at('10.0.3.1'), { instanceOf: MeshError });
    t.is(alone.code, 'STATE_UNAVAILABLE');
    t.is(await node.at('10.96.0.10'), 'demo/web', 'from memory');

    await kit.redis.start({ empty: true });
    await kit.ingester();
    await until(() => node.at('10.0.3.1').catch(() => null), {
      what: 'the address, once Redis and an ingester are back',
      timeoutMs: 30_000,
    });
    const back = await until(() => node.at('10.96.0.10').catch(() => null), {
      what: 'the service, which the new ingester was not asked for yet',
    });
    t.is(back, 'demo/web');
  },
);

test.serial('a node-proxy that was not told of it takes no address for unknown', async (t) => {
  const kit = await createOnDemandKit(t);
  await kit.ingester();
  const node = await kit.node('node-1');
  t.is(await node.at('10.96.0.10'), 'demo/web');
  const untold = await kit.node('node-2', null);
  t.is(await untold.at('10.96.0.10'), 'demo/web');
  const key = { kind: 'address', network: '', ip: '10.0.3.1' } as const;
  t.is(await untold.client.ask(key), undefined);
});

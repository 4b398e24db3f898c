import test from 'ava';
import type { Bus } from '../../../lib/bus/redis-bus.ts';
import { createControlPlaneKit } from '../../support/control-plane-kit.ts';
import { heldLease, openBus } from '../../support/bus.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

const PODS = ['web-1', 'web-2']
  .map(
    (name) =>
      `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}, namespace: default, annotations: {ambient.istio.io/redirection: enabled}}\nspec: {nodeName: node-1, containers: [{name: app}]}\n`,
  )
  .join('---\n');

const row = (uid: string, name: string, state: 'pending' | 'enabled'): Buffer =>
  Buffer.from(
    JSON.stringify({
      podUid: uid,
      namespace: 'default',
      name,
      serviceAccount: 'default',
      netns: '/run/netns/x',
      addresses: [],
      state,
      since: new Date().toISOString(),
    }),
  );

async function agent(bus: Bus): Promise<ReturnType<Bus['writer']>> {
  const lease = await heldLease(bus, 'agent', { node: 'node-1' });
  return bus.writer('enrolments', { node: 'node-1' }, lease);
}

test('pods are marked as their node enrols them, and stay so while Redis is away', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createControlPlaneKit(t);
  const environment = redis.environment('control-plane');
  const first = await kit.start(environment);
  await kit.api.apply(PODS);
  const enrolled = async (name: string): Promise<boolean> =>
    (await kit.api.object('Pod', name)).metadata.annotations?.['ambient.istio.io/redirection'] ===
    'enabled';
  t.false(await enrolled('web-1'), 'what a manifest claims does not count');
  const uid = (await kit.api.object('Pod', 'web-1')).metadata.uid ?? '';
  const other = (await kit.api.object('Pod', 'web-2')).metadata.uid ?? '';

  const { bus } = openBus(t, redis.config('node-agent.node-1'), 'agent');
  const writer = await agent(bus);
  await writer.replaceAll([
    [uid, row(uid, 'web-1', 'enabled')],
    [other, row(other, 'web-2', 'pending')],
  ]);
  await until(() => enrolled('web-1'), { what: 'web-1 to be marked' });
  t.false(await enrolled('web-2'));
  await writer.apply([{ key: other, value: row(other, 'web-2', 'enabled') }]);
  await until(() => enrolled('web-2'), { what: 'web-2 to be marked' });
  await writer.apply([{ key: 'broken', value: Buffer.from('{') }]);
  await until(async () => /malformed_enrolments_total 1/.test(await first.metrics()), {
    what: 'the malformed row to be counted',
  });

  // The node's agent ends too; otherwise it would keep its lease.
  await bus.close();
  await redis.kill();
  await first.stop();
  await kit.start(environment);
  t.true(await enrolled('web-1'), 'known from before');
  await redis.start();
  const again = openBus(t, redis.config('node-agent.node-1'), 'agent-2');
  const nextWriter = await agent(again.bus);
  await nextWriter.replaceAll([[other, row(other, 'web-2', 'enabled')]]);
  await until(async () => !(await enrolled('web-1')), { what: 'web-1 to be unmarked' });
  t.true(await enrolled('web-2'));
});

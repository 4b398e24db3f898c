/** Connections of pods in a mesh that is followed on demand (docs/decisions/on-demand.md). */
import { once } from 'node:events';
import type { Workload } from '../../lib/state/model.ts';
import { createControlPlaneKit } from '../support/control-plane-kit.ts';
import type { ControlPlaneKit } from '../support/control-plane-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { startIngester } from '../support/on-demand-kit.ts';
import { ProxyMesh, exchange } from '../support/proxy-kit.ts';
import { until } from '../support/until.ts';

const ON_DEMAND = { XDS_ON_DEMAND: 'true', ISTIO_META_DNS_CAPTURE: 'false' };

const describePod =
  ({ api }: ControlPlaneKit) =>
  async ({ name, addresses, node, serviceAccount }: Workload): Promise<void> => {
    await api.apply(`
apiVersion: v1
kind: Pod
metadata: {name: ${name}, namespace: demo, annotations: {ambient.istio.io/redirection: enabled}}
spec: {nodeName: ${node}, serviceAccountName: ${serviceAccount}, containers: [{name: c, image: i}]}
`);
    await api.run('demo', name, addresses);
  };

test('the first connection to an address waits until it is known; without an ingester it fails closed', async (t) => {
  const placement = { client: 'node-1', api: 'node-2', late: 'node-2' } as const;
  const mesh = await ProxyMesh.start(t, placement, ON_DEMAND);
  const plane = await createControlPlaneKit(t);
  await plane.start();
  await plane.api.apply(`
apiVersion: v1
kind: Namespace
metadata: {name: demo, labels: {istio.io/dataplane-mode: ambient}}
`);
  mesh.describe = describePod(plane);
  await mesh.endIngester();
  const ingester = await startIngester(t, mesh.redis, plane);
  const client = await mesh.addPod('client', 'node-1');
  const api = await mesh.addPod('api', 'node-2');
  const late = await mesh.addPod('late', 'node-2');
  for (const pod of [api, late]) await pod.serve(8080, (socket) => socket.pipe(socket));
  await mesh.startProxies();

  const dumped = async (): Promise<unknown[]> =>
    (await mesh.nodes['node-1'].json('/node-proxy/config_dump'))['onDemandNames'] as unknown[];
  t.false((await dumped()).includes(`/${api.ip}`));
  const talk = async (ip: string): Promise<string | null> =>
    exchange(await client.connect(ip, 8080), 'hello');
  await until(async () => (await talk(api.ip)) === 'hello', { what: 'the first answer' });
  t.true((await dumped()).includes(`/${api.ip}`));
  const inbound = await mesh.nodes['node-2'].connections();
  t.true(inbound.some(({ protocol }) => protocol === 'HBONE'));

  ingester.kill('SIGKILL');
  await once(ingester, 'exit');
  t.is(await talk(late.ip), null, 'an unknown address without an ingester');
  t.is(await talk(api.ip), 'hello', 'a known one');
  const [refusal] = mesh.nodes['node-1'].lines.filter((line) =>
    String(line['error']).includes(`cannot tell yet about address:/${late.ip}`),
  );
  t.truthy(refusal, 'the log names the address');

  await startIngester(t, mesh.redis, plane);
  await until(async () => (await talk(late.ip)) === 'hello', {
    what: 'an answer with the next ingester',
    timeoutMs: 30_000,
  });
});

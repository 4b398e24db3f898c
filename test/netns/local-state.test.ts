import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeScratch } from '../support/leftovers.ts';
import { ProxyMesh, exchange } from '../support/proxy-kit.ts';
import type { ProxiedPod } from '../support/proxy-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { closed } from '../support/tcp-talk.ts';

const workload = ({ name, ip, node }: ProxiedPod): string =>
  `- {uid: local/${name}, name: ${name}, namespace: demo, serviceAccount: ${name}, trustDomain: cluster.local,
   workloadIps: [${ip}], protocol: HBONE, node: ${node}, services: {}}`;

const deny = `policies:
- {name: deny, namespace: demo, scope: Namespace, action: Deny,
   rules: [[[{principals: [!Exact cluster.local/ns/demo/sa/client]}]]]}`;

test('without a control plane a file is the mesh state, and a change of it is in force on live connections', async (t) => {
  const scratch = await makeScratch('local-state');
  t.teardown(() => rm(scratch, { recursive: true }));
  const path = join(scratch, 'state.yaml');
  const placement = { client: 'node-1', api: 'node-2' } as const;
  const mesh = await ProxyMesh.start(t, placement, { XDS_ADDRESS: '', LOCAL_XDS_PATH: path });
  const client = await mesh.addPod('client', 'node-1');
  const api = await mesh.addPod('api', 'node-2');
  await api.serve(8080, (socket) => socket.pipe(socket));
  const workloads = ['workloads:', workload(client), workload(api)].join('\n');
  await writeFile(path, workloads);
  await mesh.startProxies();

  const socket = await client.connect(api.ip, 8080);
  t.is(await exchange(socket, 'one'), 'one');
  t.like(await mesh.nodes['node-2'].connections(), [{ direction: 'inbound', protocol: 'HBONE' }]);
  const dump = await mesh.nodes['node-1'].json('/node-proxy/config_dump');
  t.like(dump, { workloads: [{ uid: 'local/api' }, { uid: 'local/client' }] });
  t.is((dump['workloads'] as unknown[]).length, 2, 'of the file, and none of Redis');

  await writeFile(`${path}.new`, `${workloads}\n${deny}\n`);
  await rename(`${path}.new`, path);
  await closed(socket);
  const refused = await client.connect(api.ip, 8080);
  t.is(await exchange(refused, 'two'), null);
});

import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { closeFd, listeningPorts } from '../../lib/linux/netns.ts';
import { listenTcp } from '../../lib/linux/sockets.ts';
import { encodeService } from '../../lib/xds/resources/address.ts';
import { makeScratch } from '../support/leftovers.ts';
import { ProxyMesh, exchange } from '../support/proxy-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { until } from '../support/until.ts';
import { service } from '../support/workloads.ts';

const web = service({
  name: 'web',
  hostname: 'web.demo.svc.cluster.local',
  addresses: [{ network: '', ip: '10.96.0.10', length: null }],
});
const WEB_ROW = { key: 'demo/web.demo.svc.cluster.local', value: encodeService(web) };

const identity = (name: string): string => `spiffe://cluster.local/ns/demo/sa/${name}`;

// spec: dns.md §3
// spec: dataplane.md §9
test('a dedicated proxy carries its one workload both ways, beside a shared one (spec: observability.md §6)', async (t) => {
  const scratch = await makeScratch('dedicated');
  t.teardown(() => rm(scratch, { recursive: true }));
  const resolvConf = join(scratch, 'resolv.conf');
  await writeFile(resolvConf, 'search corp.example\n');
  const placement = { client: 'node-1', bystander: 'node-1', api: 'node-2' } as const;
  const mesh = await ProxyMesh.start(t, placement);
  const client = await mesh.addPod('client', 'node-1');
  await mesh.addPod('bystander', 'node-1');
  const api = await mesh.addPod('api', 'node-2');
  for (const pod of [client, api]) await pod.serve(8080, (socket) => socket.pipe(socket));
  await mesh.tables.addresses.apply([WEB_ROW]);

  mesh.nodes['node-2'].start();
  const proxy = mesh.nodes['node-1'].another(
    0,
    {
      PROXY_MODE: 'dedicated',
      PROXY_WORKLOAD_INFO: 'demo/client/client',
      PACKET_MARK: '1337',
      WEFT_DNS_RESOLV_CONF: resolvConf,
    },
    client.netns,
  );
  await Promise.all([proxy.ready(), mesh.nodes['node-2'].ready()]);

  const out = await client.connect(api.ip, 8080);
  t.is(await exchange(out, 'out'), 'out');
  const back = await api.connect(client.ip, 8080);
  t.is(await exchange(back, 'back'), 'back');
  const { connections } = await proxy.json<{ connections: Record<string, unknown>[] }>(
    '/node-proxy/connections',
  );
  t.is(connections.length, 2);
  t.like(
    connections.find(({ direction }) => direction === 'outbound'),
    {
      protocol: 'HBONE',
      sourceIdentity: identity('client'),
      destinationIdentity: identity('api'),
    },
  );
  t.like(
    connections.find(({ direction }) => direction === 'inbound'),
    {
      protocol: 'HBONE',
      sourceIdentity: identity('api'),
      destinationIdentity: identity('client'),
    },
  );

  const dump = await proxy.json<Record<string, unknown>>('/node-proxy/config_dump');
  t.like(dump, {
    certificates: [{ identity: identity('client'), state: 'Available' }],
    workloadState: {
      'dedicated/demo/client': { state: 'Up', info: { name: 'client', namespace: 'demo' } },
    },
  });
  t.is((dump['certificates'] as unknown[]).length, 1, 'of its own workload alone');
  t.is(Object.keys(dump['workloadState'] as object).length, 1);

  // Names below the machine's search domain count as short names; Kubernetes' own domains are not searched.
  const dig = (name: string) =>
    client.netns.exec('dig', '+short', '+tries=1', '+time=60', '-p', '15053', '@127.0.0.1', name);
  t.regex(await dig('web.corp.example'), /^10\.96\.0\.10$/m);
  t.notRegex(await dig('web.demo.svc.cluster.local.svc.cluster.local'), /10\.96\.0\.10/);

  // Outgoing sockets are marked, listening ones are not (docs/spec/dataplane.md §9).
  const sockets = (words: string) => client.netns.exec('ss', '-neH', ...words.split(' '));
  const listening = await sockets('-tul');
  t.regex(listening, /:15008 /);
  t.notRegex(listening, /fwmark/);
  t.regex(await sockets('-t dport = 15008'), /fwmark:0x539/);

  for (const socket of [out, back]) socket.destroy();
  proxy.kill('SIGTERM');
  t.is(await proxy.ended, 0);
});

test('with ENABLE_PROXY=false names are answered and nothing else is (spec: observability.md §6)', async (t) => {
  const mesh = await ProxyMesh.start(t, { client: 'node-1' });
  const client = await mesh.addPod('client', 'node-1');
  await mesh.tables.addresses.apply([WEB_ROW]);
  const proxy = mesh.nodes['node-1'].another(
    0,
    {
      ENABLE_PROXY: 'false',
      UNSTABLE_ENABLE_SOCKS5: 'true',
      PROXY_MODE: 'dedicated',
      PROXY_WORKLOAD_INFO: 'demo/client/client',
    },
    client.netns,
  );
  await proxy.ready();
  for (const how of ['+notcp', '+tcp']) {
    const words = ['+short', '+tries=1', '+time=60', how, '-p', '15053', '@127.0.0.1', 'web.demo'];
    const answer = await client.netns.exec('dig', ...words);
    t.is(answer, '10.96.0.10\n', how);
  }
  const listening = await client.netns.exec('ss', '-tlnH');
  t.regex(listening, /:15053 /);
  t.notRegex(listening, /:(?:15001|15006|15008|15080) /);
  const dump = await proxy.json<Record<string, unknown>>('/node-proxy/config_dump');
  t.deepEqual(dump['certificates'], [], 'nobody needs one');
  proxy.kill('SIGTERM');
  t.is(await proxy.ended, 0);
});

test('a dedicated proxy with half a name does not start, and says what it lacks', async (t) => {
  const mesh = await ProxyMesh.start(t, { client: 'node-1' });
  const proxy = mesh.nodes['node-1'].another(0, {
    PROXY_MODE: 'dedicated',
    PROXY_WORKLOAD_INFO: 'demo/client',
  });
  t.is(await proxy.ended, 78);
  t.regex(JSON.stringify(proxy.lines), /PROXY_WORKLOAD_INFO must be namespace\/name/);
});

// spec: inpod.md §4.3, spec: inpod.md §7
test('a dedicated proxy of which one port is taken listens on none, is not ready, and serves when it is free', async (t) => {
  const mesh = await ProxyMesh.start(t, { client: 'node-1' });
  const client = await mesh.addPod('client', 'node-1');
  const { fd } = listenTcp({
    netnsFd: client.netnsFd,
    address: '::',
    port: 15_001,
    mark: 0,
    reusePort: false,
    transparent: 'off',
  });
  const proxy = mesh.nodes['node-1'].another(
    0,
    { PROXY_MODE: 'dedicated', PROXY_WORKLOAD_INFO: 'demo/client/client' },
    client.netns,
  );
  try {
    await until(() => proxy.logged('pod.start-failed').length > 0, { what: 'the refusal' });
    t.regex((await proxy.pending()) ?? '', /workload proxy manager/);
    t.regex(JSON.stringify(proxy.logged('pod.start-failed')), /EADDRINUSE|in use/i);
    await until(
      () => listeningPorts(client.netnsFd).every((port) => port !== 15_006 && port !== 15_008),
      { what: 'the others to be closed' },
    );
  } finally {
    closeFd(fd);
  }
  await proxy.ready();
  t.is(proxy.logged('pod.listening').length, 1);
});

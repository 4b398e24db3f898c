import { keptConnection } from '../support/kept-connection.ts';
import { until } from '../support/until.ts';
import { createNetns, createPodPair } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { agentSite, metric, startAgent } from '../support/node-agent-kit.ts';
import { podRecord, removeRecord, writeRecord } from '../support/pod-records.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { netnsTest as test } from '../support/netns-test.ts';

const DRIFT_RULES = 'nodeagent_drift_repaired_total{kind="rules"}';
const DRIFT_LISTENERS = 'nodeagent_drift_repaired_total{kind="listeners"}';

async function redirects(netns: TestNetns): Promise<boolean> {
  return (await netns.exec('iptables-nft-save')).includes('--to-ports 15001');
}

test('a pod is enrolled when it appears and forgotten when it goes', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  const pod = await createNetns(t, 'pod');
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  await until(() => agent.state('u-1') === 'pending', { what: 'pending without a proxy' });
  t.true(await redirects(pod));
  await until(() => site.rows().get('u-1')?.state === 'pending', { what: 'the pending row' });

  const proxy = startServingProxy(t, site.socket);
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  t.deepEqual(proxy.served.get('u-1')?.info, {
    name: 'u-1',
    namespace: 'demo',
    serviceAccount: 'default',
  });
  await until(() => site.rows().get('u-1')?.state === 'enabled', { what: 'the enabled row' });
  t.is((await pod.exec('sysctl', '-n', 'net.ipv4.tcp_migrate_req')).trim(), '1');

  await removeRecord(site.podsDir, 'u-1');
  await until(() => proxy.told.includes('del u-1'), { what: 'Del' });
  await until(() => site.rows().size === 0, { what: 'the row to go' });
  t.deepEqual(agent.enrolments(), []);
});

test('traffic of an enrolled pod reaches the proxy with its destination, and passes after it leaves', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  const { pod, peer } = await createPodPair(t);
  const record = podRecord({ uid: 'u-1', netns: pod.path });
  await writeRecord(site.podsDir, 'u-1', record);
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  const read = (netns: TestNetns, host: string, port: number): Promise<string> =>
    netns.exec('bash', '-c', `exec 3<>/dev/tcp/${host}/${port}; cat <&3`);
  t.is(await read(pod, '10.9.0.1', 7_777), '15001 10.9.0.1 7777\n');
  t.is(await read(pod, 'fd09::1', 7_777), '15001 fd09::1 7777\n');
  t.is(await read(peer, '10.9.0.2', 8_080), '15006 10.9.0.2 8080\n');
  t.is(await read(peer, 'fd09::2', 8_080), '15006 fd09::2 8080\n');
  t.regex(await read(peer, '10.9.0.2', 15_008), /^15008 /);

  await writeRecord(site.podsDir, 'u-1', { ...record, labels: {} });
  await until(() => agent.state('u-1') === 'leaving', { what: 'leaving' });
  await until(() => agent.enrolments().length === 0, { what: 'un-enrolment' });
  t.notRegex(await pod.exec('iptables-nft-save'), /ISTIO_/);
  t.notRegex(await pod.ip('rule show'), /32764/);
  t.true(proxy.told.includes('del u-1'));
  t.is(proxy.served.size, 0);
  await t.throwsAsync(read(peer, '10.9.0.2', 8_080), { message: /refused/i });
  await until(() => site.rows().size === 0, { what: 'the row to go' });

  await writeRecord(site.podsDir, 'u-1', record);
  await until(() => agent.state('u-1') === 'enabled', { what: 'enrolled while running' });
  t.is(await read(peer, '10.9.0.2', 8_080), '15006 10.9.0.2 8080\n');
});

test('connections from before enrolment go on, in both directions', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  startServingProxy(t, site.socket);
  const { pod, peer } = await createPodPair(t);
  const talks = [
    await keptConnection(t, { from: pod, to: peer, ip: '10.9.0.1' }),
    await keptConnection(t, { from: peer, to: pod, ip: '10.9.0.2' }),
    await keptConnection(t, { from: peer, to: pod, ip: 'fd09::2' }),
  ];
  for (const talk of talks) t.is(await talk('before'), 'before');
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  for (const talk of talks) t.is(await talk('after'), 'after');
  const settings = ['loose', 'be_liberal'].map((name) => `net.netfilter.nf_conntrack_tcp_${name}`);
  t.is(await pod.exec('sysctl', '-n', ...settings), '0\n1\n');
});

test('removed rules, routing and listeners are found, repaired and counted', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  const pod = await createNetns(t, 'pod');
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  t.is(await metric(agent, DRIFT_RULES), 0);

  await pod.exec('iptables-nft', '-t', 'nat', '-F');
  await until(() => redirects(pod), { what: 'rules to be back' });
  await until(async () => (await metric(agent, DRIFT_RULES)) === 1, { what: 'the count' });

  await pod.ip('rule del pref 32764');
  await until(async () => (await pod.ip('rule show')).includes('32764'), { what: 'ip rule' });
  await until(async () => (await metric(agent, DRIFT_RULES)) === 2, { what: 'the count' });

  await pod.exec('ip6tables-nft', '-t', 'nat', '-A', 'OUTPUT', '-p', 'udp', '-j', 'ACCEPT');
  const before = agent.enrolments()[0]?.driftRepairs;
  t.is(before, 2);

  proxy.loseListener('u-1', 1);
  await until(async () => (await metric(agent, DRIFT_LISTENERS)) >= 1, { what: 'listener repair' });
  await until(async () => (await pod.exec('ss', '-ltnH')).includes(':15006'), {
    what: 'the listener to be back',
  });
  t.is(await metric(agent, DRIFT_RULES), 2);
});

test('the same uid in another namespace is served there', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  const [first, second] = [await createNetns(t, 'a'), await createNetns(t, 'b')];
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: first.path }));
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  const before = proxy.served.get('u-1')?.netns.inode;
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: second.path }));
  await until(() => ![undefined, before].includes(proxy.served.get('u-1')?.netns.inode), {
    what: 'the other namespace',
  });
  await until(() => site.rows().get('u-1')?.netns === second.path, { what: 'the row' });
  t.true(await redirects(second));
});

test('another namespace under the same path is noticed', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  const pod = await createNetns(t, 'pod');
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  const before = proxy.served.get('u-1')?.netns.inode;
  await pod.replace();
  await until(() => ![undefined, before].includes(proxy.served.get('u-1')?.netns.inode), {
    what: 'the other namespace',
  });
  t.true(await redirects(pod));
});

test('who is not to be enrolled is left alone, rules of an earlier enrolment apart', async (t) => {
  const site = await agentSite(t);
  const pods = {
    optedOut: await createNetns(t, 'out'),
    sidecar: await createNetns(t, 'side'),
    system: await createNetns(t, 'sys'),
  };
  for (const pod of [pods.optedOut, pods.sidecar]) {
    await pod.exec('iptables-nft', '-t', 'nat', '-N', 'ISTIO_OUTPUT');
    await pod.exec('iptables-nft', '-t', 'nat', '-A', 'OUTPUT', '-j', 'ISTIO_OUTPUT');
  }
  await writeRecord(
    site.podsDir,
    'u-out',
    podRecord({
      uid: 'u-out',
      netns: pods.optedOut.path,
      labels: { 'istio.io/dataplane-mode': 'none' },
      namespaceLabels: { 'istio.io/dataplane-mode': 'ambient' },
    }),
  );
  await writeRecord(
    site.podsDir,
    'u-side',
    podRecord({
      uid: 'u-side',
      netns: pods.sidecar.path,
      annotations: { 'sidecar.istio.io/status': '{}' },
    }),
  );
  await writeRecord(
    site.podsDir,
    'u-host',
    podRecord({ uid: 'u-host', netns: '/proc/self/ns/net', hostNetwork: true }),
  );
  await writeRecord(
    site.podsDir,
    'u-sys',
    podRecord({ uid: 'u-sys', netns: pods.system.path, namespace: 'kube-system' }),
  );
  await writeRecord(
    site.podsDir,
    'u-wrong',
    podRecord({ uid: 'u-wrong', netns: '/proc/self/ns/net', addresses: [] }),
  );
  await writeRecord(
    site.podsDir,
    'u-reused',
    podRecord({ uid: 'u-reused', netns: '/proc/self/ns/net' }),
  );
  const agent = await startAgent(t, site);
  await until(() => agent.context.readiness.pending().length === 0, { what: 'readiness' });
  const told = agent
    .enrolments()
    .map(({ podUid, state, reason }) => [
      podUid,
      `${state}: ${/of the node or of its agent|has no address/.exec(reason ?? '')?.[0]}`,
    ]);
  t.deepEqual(Object.fromEntries(told), {
    'u-wrong': 'waiting: of the node or of its agent',
    'u-reused': 'waiting: has no address',
  });
  t.notRegex(await pods.optedOut.exec('iptables-nft-save'), /ISTIO_/);
  t.regex(await pods.sidecar.exec('iptables-nft-save'), /-A OUTPUT -j ISTIO_OUTPUT/);
});

test('a malformed record is named and counted, and the state before it stays', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  const pod = await createNetns(t, 'pod');
  const record = podRecord({ uid: 'u-1', netns: pod.path });
  await writeRecord(site.podsDir, 'u-1', record);
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  await writeRecord(site.podsDir, 'u-1', { ...record, netns: 7, labels: null });
  await writeRecord(site.podsDir, 'u-2', '{');
  await writeRecord(site.podsDir, 'u-3', { ...record, uid: 'u-3', node: 'node-9' });
  const count = 'nodeagent_pod_source_problems_total{kind="record"}';
  await until(async () => (await metric(agent, count)) === 3, { what: 'three counted' });
  const reasons = agent.lines
    .filter((line) => line.message === 'pods.record-malformed')
    .map((line) => `${String(line['file'])} ${String(line['reason'])}`);
  t.true(reasons.some((text) => /u-1\.json .*netns: .*labels: /.test(text)));
  t.true(reasons.some((text) => /u-2\.json .*JSON/.test(text)));
  t.true(reasons.some((text) => /u-3\.json node: node-9/.test(text)));
  t.is(agent.state('u-1'), 'enabled');
  t.false(proxy.told.includes('del u-1'));
});

test('what carried connections need outlives the redirection until the drain deadline', async (t) => {
  const site = await agentSite(t, { CONNECTION_TERMINATION_DEADLINE: '60s' });
  const agent = await startAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  const pod = await createNetns(t, 'pod');
  const record = podRecord({ uid: 'u-1', netns: pod.path });
  await writeRecord(site.podsDir, 'u-1', record);
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  await writeRecord(site.podsDir, 'u-1', { ...record, labels: {} });
  await until(() => proxy.told.includes('del u-1'), { what: 'Del' });
  t.is(agent.state('u-1'), 'leaving');
  const rules = await pod.exec('iptables-nft-save');
  t.notRegex(rules, /REDIRECT/);
  t.regex(rules, /-A ISTIO_OUTPUT -m connmark --mark 0x111\/0xfff/);
  t.regex(rules, /-A ISTIO_OUTPUT .* -j CT --zone-orig 2/);
  t.regex(await pod.ip('rule show'), /32764/);
  await until(() => site.rows().size === 0, { what: 'the row to go' });

  await writeRecord(site.podsDir, 'u-1', record);
  await until(() => agent.state('u-1') === 'enabled', { what: 'enrolled again at once' });
  t.true(await redirects(pod));
  t.true(proxy.served.has('u-1'));
});

test('drift is found with legacy iptables too', async (t) => {
  const site = await agentSite(t, { FORCE_IPTABLES_BINARY: 'legacy' });
  const agent = await startAgent(t, site);
  startServingProxy(t, site.socket);
  const pod = await createNetns(t, 'pod');
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  await pod.exec('ip6tables-legacy', '-t', 'nat', '-F', 'ISTIO_PRERT');
  await until(async () => (await pod.exec('ip6tables-legacy-save')).includes('--to-ports 15006'), {
    what: 'rules to be back',
  });
  await until(async () => (await metric(agent, DRIFT_RULES)) === 1, { what: 'the count' });
  t.is(agent.enrolments()[0]?.driftRepairs, 1);
});

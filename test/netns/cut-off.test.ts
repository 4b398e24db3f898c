import { createNetns, createPodPair } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { agentSite, killed, metric, spawnAgent, startAgent } from '../support/node-agent-kit.ts';
import type { TestAgent } from '../support/node-agent-kit.ts';
import { listenIn, seizeTable } from '../support/pod-faults.ts';
import { podRecord, writeRecord } from '../support/pod-records.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';

/** Bounds a failed test; far from what a busy machine needs. */
const LONG_SECONDS = 60;

async function isCut(pod: TestNetns): Promise<boolean> {
  const families = await Promise.all(['-4', '-6'].map((family) => pod.ip(`${family} rule show`)));
  return families.every((text) => /^1:\tfrom all prohibit/m.test(text));
}

/** Tries one connection. A refusal takes `seconds` where packets are dropped, so only what should succeed gets long. */
async function connects(
  from: TestNetns,
  host: string,
  port: number,
  seconds = 1,
): Promise<boolean> {
  const command = `exec 3<>/dev/tcp/${host}/${port}`;
  return from.exec('timeout', String(seconds), 'bash', '-c', command).then(
    () => true,
    () => false,
  );
}

function exposure(agent: TestAgent, uid: string): string | undefined {
  return agent.enrolments().find((row) => row.podUid === uid)?.exposure;
}

test('a pod whose rules cannot be written back is cut off, and let go once they are', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  startServingProxy(t, site.socket);
  const { pod, peer } = await createPodPair(t);
  await listenIn(peer, 7_000);
  await listenIn(pod, 8_000);
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });

  const release = await seizeTable(pod);
  await until(() => exposure(agent, 'u-1') === 'cut', { what: 'the cut' });
  t.true(await isCut(pod));
  for (const host of ['10.9.0.1', 'fd09::1']) t.false(await connects(pod, host, 7_000), host);
  for (const host of ['10.9.0.2', 'fd09::2']) t.false(await connects(peer, host, 8_000), host);
  t.true(await connects(pod, '127.0.0.1', 8_000, LONG_SECONDS), 'its own loopback');
  t.is(await metric(agent, 'nodeagent_cuts_total'), 1);
  t.is(await metric(agent, 'nodeagent_pods_without_rules{state="cut"}'), 1);

  // Somebody takes the cut away.
  await pod.ip('rule del pref 1');
  await until(() => isCut(pod), { what: 'the cut to be back' });

  await release();
  await until(() => exposure(agent, 'u-1') === undefined, { what: 'the end of the cut' });
  t.false(await isCut(pod));
  t.true((await pod.exec('iptables-nft-save')).includes('--to-ports 15001'));
  t.true(await connects(pod, '10.9.0.1', 7_000, LONG_SECONDS), 'its traffic');
});

test('pods beyond the limit stay open and are told, until a person cuts them off', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  const pods = await Promise.all(['a', 'b', 'c'].map((label) => createNetns(t, label)));
  for (const [index, { path }] of pods.entries()) {
    const uid = `u-${index}`;
    await writeRecord(site.podsDir, uid, podRecord({ uid, netns: path }));
  }
  const uids = pods.map((_, index) => `u-${index}`);
  await until(() => uids.every((uid) => agent.state(uid) === 'pending'), { what: 'the rules' });

  const releases = await Promise.all(pods.map((pod) => seizeTable(pod)));
  const exposures = (): readonly string[] =>
    uids.map((uid) => exposure(agent, uid) ?? 'none').toSorted();
  await until(() => String(exposures()) === 'cut,open,open', { what: 'one cut and two open' });
  t.is(await metric(agent, 'nodeagent_pods_without_rules{state="open"}'), 2);
  const cuts = await Promise.all(pods.map(isCut));
  t.is(cuts.filter(Boolean).length, 1);

  await agent.ask('POST', '/cut');
  await until(() => String(exposures()) === 'cut,cut,cut', { what: 'all to be cut off' });
  t.deepEqual(await Promise.all(pods.map(isCut)), [true, true, true]);

  await Promise.all(releases.map((release) => release()));
  await until(() => exposures().every((state) => state === 'none'), { what: 'the end' });
  t.deepEqual(await Promise.all(pods.map(isCut)), [false, false, false]);
});

test('agents that are killed one after another cut off no more pods than one', async (t) => {
  const site = await agentSite(t);
  const pods = await Promise.all(['a', 'b', 'c'].map((label) => createNetns(t, label)));
  for (const [index, { path }] of pods.entries()) {
    const uid = `u-${index}`;
    await writeRecord(site.podsDir, uid, podRecord({ uid, netns: path }));
  }
  const releases = await Promise.all(pods.map((pod) => seizeTable(pod)));
  const cut = async (): Promise<readonly boolean[]> => Promise.all(pods.map(isCut));
  const first = spawnAgent(t, site);
  await until(async () => (await cut()).includes(true), { what: 'the cut' });
  await killed(first);
  const before = await cut();
  t.is(before.filter(Boolean).length, 1);

  const agent = await startAgent(t, site);
  const exposures = (): readonly string[] =>
    pods.map((_, index) => exposure(agent, `u-${index}`) ?? 'none').toSorted();
  await until(() => String(exposures()) === 'cut,open,open', { what: 'one cut and two open' });
  t.deepEqual(await cut(), before);
  t.is(await metric(agent, 'nodeagent_cuts_total'), 0);
  await Promise.all(releases.map((release) => release()));
  await until(() => exposures().every((state) => state === 'none'), { what: 'the end' });
});

test('a pod that started while the agent was away is cut off, by the next agent too, until it leaves the mesh', async (t) => {
  const site = await agentSite(t);
  const pod = await createNetns(t, 'pod');
  const record = podRecord({ uid: 'u-1', netns: pod.path });
  await writeRecord(site.podsDir, 'u-1', record);
  const release = await seizeTable(pod);
  const first = spawnAgent(t, site);
  await until(() => isCut(pod), { what: 'the cut' });
  await killed(first);
  t.true(await isCut(pod));

  const agent = await startAgent(t, site);
  await until(() => exposure(agent, 'u-1') === 'cut', { what: 'the cut to be found' });
  t.is(await metric(agent, 'nodeagent_cuts_total'), 0);
  await release();
  await until(() => exposure(agent, 'u-1') === undefined, { what: 'the end of the cut' });
  const again = await seizeTable(pod);
  await until(() => isCut(pod), { what: 'another cut' });
  await writeRecord(site.podsDir, 'u-1', { ...record, labels: {} });
  await until(async () => !(await isCut(pod)), { what: 'a pod outside the mesh to be open' });
  await again();
});

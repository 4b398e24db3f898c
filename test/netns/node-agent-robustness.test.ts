import { openNetns, closeFd, nftGeneration } from '../../lib/linux/netns.ts';
import { createNetns } from '../support/netns-kit.ts';
import { agentSite, killed, spawnAgent, startAgent } from '../support/node-agent-kit.ts';
import { podRecord, removeRecord, writeRecord } from '../support/pod-records.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';
import { netnsTest as test } from '../support/netns-test.ts';

test('a killed agent leaves everything in place, and its successor takes over without a change', async (t) => {
  const site = await agentSite(t);
  const pods = [await createNetns(t, 'a'), await createNetns(t, 'b'), await createNetns(t, 'c')];
  for (const [index, pod] of pods.entries()) {
    const uid = `u-${index}`;
    await writeRecord(site.podsDir, uid, podRecord({ uid, netns: pod.path }));
  }
  const first = spawnAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  await until(
    () => [...site.rows().values()].filter((row) => row.state === 'enabled').length === 3,
    {
      what: 'three enabled rows',
    },
  );
  const rowsBefore = new Map(site.rows());
  await killed(first);
  await until(() => proxy.told.at(-1) === 'ended', { what: 'the end of the session' });
  t.is(proxy.served.size, 3);
  const fds = pods.map((pod) => openNetns(pod.path));
  t.teardown(() => fds.forEach((fd) => closeFd(fd)));
  const generations = fds.map((fd) => nftGeneration(fd));

  // While no agent runs, one pod is removed and one loses a rule.
  await removeRecord(site.podsDir, 'u-2');
  await pods[1]?.exec('iptables-nft', '-t', 'nat', '-F', 'ISTIO_PRERT');
  proxy.told.length = 0;
  spawnAgent(t, site);
  await until(() => proxy.told.some((line) => line.startsWith('snapshot')), { what: 'a snapshot' });
  await until(() => site.rows().size === 2, { what: 'the row of the pod that is gone to go' });
  await until(
    async () => (await pods[1]?.exec('iptables-nft-save'))?.includes('--to-ports 15006'),
    { what: 'the lost rule' },
  );
  await until(() => proxy.told.includes('add u-0') && proxy.told.includes('add u-1'), {
    what: 'Adds of both',
  });
  t.false(proxy.told.some((line) => line.startsWith('del')));
  t.deepEqual([...proxy.served.keys()].sort(), ['u-0', 'u-1']);
  t.is(nftGeneration(fds[0] ?? -1), generations[0] ?? null);
  t.deepEqual(site.rows().get('u-0'), rowsBefore.get('u-0'));
});

test('a pod that stayed redirected stays enabled while a newer agent adds to its rules and no proxy is there', async (t) => {
  const site = await agentSite(t);
  const [served, opened] = [await createNetns(t, 'a'), await createNetns(t, 'b')];
  await writeRecord(site.podsDir, 'u-a', podRecord({ uid: 'u-a', netns: served.path }));
  await writeRecord(site.podsDir, 'u-b', podRecord({ uid: 'u-b', netns: opened.path }));
  const older = await startAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  const states = (): string => ['u-a', 'u-b'].map((uid) => site.rows().get(uid)?.state).join();
  await until(() => states() === 'enabled,enabled', { what: 'two enabled rows' });
  const before = site.rows().get('u-a');
  await proxy.stop();
  await older.stop();

  // The state that an agent without this table leaves in a pod.
  for (const program of ['iptables-nft', 'ip6tables-nft']) {
    await served.exec(program, '-t', 'raw', '-F');
    await served.exec(program, '-t', 'raw', '-X');
  }
  // This pod was not redirected for a while; both rows are written at once.
  await opened.exec('ip6tables-nft', '-t', 'nat', '-F', 'ISTIO_OUTPUT');
  const newer = await startAgent(t, site);
  await until(() => site.rows().get('u-b')?.state === 'pending', { what: 'the pending row' });
  t.deepEqual(site.rows().get('u-a'), before);
  t.deepEqual([newer.state('u-a'), newer.state('u-b')], ['pending', 'pending']);
  t.regex(await served.exec('iptables-nft-save'), /-A ISTIO_OUTPUT .* -j CT --zone-orig 2/);

  startServingProxy(t, site.socket);
  await until(() => states() === 'enabled,enabled', { what: 'both served again' });
  t.deepEqual(site.rows().get('u-a'), before);
});

test('pods are enrolled and removed while Redis is away, and the rows follow when it is back', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  const [a, b] = [await createNetns(t, 'a'), await createNetns(t, 'b')];
  await writeRecord(site.podsDir, 'u-a', podRecord({ uid: 'u-a', netns: a.path }));
  await until(() => site.rows().get('u-a')?.state === 'enabled', { what: 'the first row' });
  await site.redis.kill();
  await writeRecord(site.podsDir, 'u-b', podRecord({ uid: 'u-b', netns: b.path }));
  await until(() => agent.state('u-b') === 'enabled', { what: 'enrolment without Redis' });
  await removeRecord(site.podsDir, 'u-a');
  await until(() => proxy.told.includes('del u-a'), { what: 'Del without Redis' });
  await site.redis.start({ empty: true });
  await until(() => [...site.rows().keys()].join() === 'u-b', {
    what: 'the rows to be right in an empty Redis',
    timeoutMs: 20_000,
  });
  t.is(site.rows().get('u-b')?.state, 'enabled');
});

test('a hundred pods are enrolled in seconds', async (t) => {
  const count = 100;
  const site = await agentSite(t);
  const pods = [];
  for (let index = 0; index < count; index += 1) pods.push(await createNetns(t, `p${index}`));
  const agent = await startAgent(t, site);
  const proxy = startServingProxy(t, site.socket);
  const startedMs = performance.now();
  await Promise.all(
    pods.map((pod, index) =>
      writeRecord(site.podsDir, `u-${index}`, podRecord({ uid: `u-${index}`, netns: pod.path })),
    ),
  );
  const enabled = (): number => agent.enrolments().filter((row) => row.state === 'enabled').length;
  await until(() => enabled() === count, { what: 'all pods', timeoutMs: 60_000 });
  t.log(`${count} pods in ${Math.round(performance.now() - startedMs)} ms`);
  t.is(proxy.served.size, count);
  await until(() => site.rows().size === count, { what: 'all rows' });
  t.true([...site.rows().values()].every((row) => row.addresses.length === 1));

  for (let index = 0; index < count; index += 1) await removeRecord(site.podsDir, `u-${index}`);
  await until(() => proxy.served.size === 0, { what: 'all pods to be stopped' });
  await until(() => site.rows().size === 0, { what: 'all rows to go' });
});

test('every proxy of the newest group serves a pod, older ones only hear of its end', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  const old = startServingProxy(t, site.socket, 1);
  const [a, b] = [await createNetns(t, 'a'), await createNetns(t, 'b')];
  await writeRecord(site.podsDir, 'u-a', podRecord({ uid: 'u-a', netns: a.path }));
  await until(() => old.served.has('u-a'), { what: 'the old proxy' });
  const fresh = [startServingProxy(t, site.socket, 2), startServingProxy(t, site.socket, 2)];
  await until(() => fresh.every((proxy) => proxy.served.has('u-a')), { what: 'the new proxies' });
  for (const proxy of fresh) proxy.refused.add('u-b');
  await writeRecord(site.podsDir, 'u-b', podRecord({ uid: 'u-b', netns: b.path }));
  await until(() => /u-b is refused here/.test(agent.enrolments()[1]?.reason ?? ''), {
    what: 'the reason',
  });
  t.is(agent.state('u-b'), 'pending');
  fresh[0]?.refused.clear();
  await until(() => fresh[0]?.served.has('u-b'), { what: 'one of them' });
  t.is(agent.state('u-b'), 'pending');
  fresh[1]?.refused.clear();
  await until(() => agent.state('u-b') === 'enabled', { what: 'both of them' });
  t.false(old.served.has('u-b'));
  await removeRecord(site.podsDir, 'u-a');
  await until(() => [old, ...fresh].every((proxy) => proxy.told.includes('del u-a')), {
    what: 'Del to all',
  });
});

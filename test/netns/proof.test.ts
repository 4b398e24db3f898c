import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { systemClock } from '../../lib/clock/clock.ts';
import { NetnsHandle } from '../../lib/linux/netns-handle.ts';
import { Redirector } from '../../lib/redirect/apply.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { DEFAULT_PROBE_ADDRESS, redirectRules } from '../../lib/redirect/rules.ts';
import { CANARY_MS } from '../../services/node-agent/limits.ts';
import type { Proof } from '../../services/node-agent/proof/node-proof.ts';
import { sendCanary } from '../../services/node-agent/proof/canary.ts';
import { bareEnvironment } from '../support/bare-environment.ts';
import { makeScratch } from '../support/leftovers.ts';
import { createNetns, createPodPair } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { nodeEnrolments } from '../support/node-enrolments.ts';
import { agentSite, spawnAgent, startAgent } from '../support/node-agent-kit.ts';
import { listenIn, seizeTable } from '../support/pod-faults.ts';
import { podRecord, writeRecord } from '../support/pod-records.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';

const run = promisify(execFile);
const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;

test('a canary tells who takes the connections of a pod', async (t) => {
  const { pod, peer } = await createPodPair(t);
  const lone = await createNetns(t, 'lone');
  const lockDir = await makeScratch('canary');
  const tool = new Redirector(await chooseTools({ ipv6: true, force: 'nft', lockDir }), lockDir);
  const rules = redirectRules({
    ipv6: true,
    dnsCapture: false,
    bypassInboundCapture: false,
    virtualInterfaces: [],
    probeAddress: DEFAULT_PROBE_ADDRESS,
  });
  const open = (netns: TestNetns): NetnsHandle => {
    const handle = NetnsHandle.open(netns.path);
    t.teardown(() => handle.release());
    return handle;
  };
  const { fd, identity } = open(pod);
  const target = { netnsFd: fd, inode: identity.inode };
  const canary = (): ReturnType<typeof sendCanary> => sendCanary(fd, systemClock);

  t.is(await sendCanary(open(lone).fd, systemClock), 'no-route');
  t.is(await canary(), 'not-captured');
  await tool.apply(target, rules);
  t.is(await canary(), 'refused');
  const server = await listenIn(pod, 15_001);
  t.is(await canary(), 'captured');
  await tool.cut(target);
  t.is(await canary(), 'cut-off');
  await tool.remove(target);
  server.kill();

  await peer.ip('addr add 192.0.2.1/32 dev lo');
  await listenIn(peer, 9);
  t.is(await canary(), 'answered-by-others');
});

test('proofs take one place of the rules, and none while canaries are on their way', async (t) => {
  const { enrolments, slots } = await nodeEnrolments(await makeScratch('proofs'));
  t.teardown(() => enrolments.stop());
  const pods = await Promise.all(['a', 'b', 'c'].map((label) => createNetns(t, label)));
  const records = pods.map(({ path }, index) => podRecord({ uid: `u-${index}`, netns: path }));
  await enrolments.update({
    pods: new Map(records.map((record) => [record.uid, record])),
    unreadable: new Set(),
  });
  for (const pod of pods) {
    await pod.ip('route add default dev lo');
    await pod.exec('iptables-nft', ...'-A INPUT -p tcp --dport 15001 -j DROP'.split(' '));
  }
  let most = 0;
  let lastTakenMs = 0;
  const sampled = setInterval(() => {
    most = Math.max(most, slots.taken);
    if (slots.taken > 0) lastTakenMs = performance.now();
  });
  t.teardown(() => clearInterval(sampled));
  const proven = await enrolments.prove();
  // Its place was given back before the last canary left, and nobody answers canaries here.
  t.true(performance.now() - lastTakenMs >= CANARY_MS - 1);
  t.is(most, 1);
  t.deepEqual(
    proven.map(({ canary }) => canary),
    ['not-captured', 'not-captured', 'not-captured'],
  );
});

test('the proof of a node names what is wrong with it and with its pods', async (t) => {
  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  const proof = async (): Promise<Proof> => (await agent.ask('GET', '/proof')) as Proof;
  const causes = async (): Promise<readonly string[]> =>
    (await proof()).findings.map(({ pod, cause }) => `${pod}: ${cause}`);
  const pod = await createNetns(t, 'pod');
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  await until(() => agent.state('u-1') === 'pending', { what: 'the rules' });
  t.deepEqual(await causes(), [
    'null: no proxy',
    'demo/u-1: not enrolled',
    'demo/u-1: missing listener',
  ]);

  startServingProxy(t, site.socket);
  await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
  t.deepEqual(await proof(), { node: 'node-1', pods: 1, findings: [] });

  await seizeTable(pod);
  await until(() => agent.enrolments()[0]?.exposure === 'cut', { what: 'the cut' });
  const { findings } = await proof();
  t.true(
    findings.some(
      ({ cause, detail }) =>
        cause === 'missing rule' && detail === 'IPv4 table nat has no chains (cut off)',
    ),
    JSON.stringify(findings),
  );
});

/** Runs `weft doctor` of the agent at this address; resolves to its words, after its status unless that is 0. */
async function doctor(address: string, ...words: string[]): Promise<string> {
  const env = bareEnvironment({ WEFT_ADMIN_ADDRESS: address });
  return run(WEFT, ['doctor', ...words], { env }).then(
    ({ stdout }) => stdout,
    (error: unknown) => {
      const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
      return `${code} ${stdout}${stderr}`;
    },
  );
}

test('weft doctor asks an agent, and its status tells whether all is right', async (t) => {
  const site = await agentSite(t);
  const address = `unix:${join(dirname(site.podsDir), 'admin.sock')}`;
  const environment = { ...site.environment, WEFT_ADMIN_ADDRESS: address };
  spawnAgent(t, { ...site, environment });
  const pod = await createNetns(t, 'pod');
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  const proxy = startServingProxy(t, site.socket);
  await until(() => site.rows().get('u-1')?.state === 'enabled', { what: 'enabled' });
  t.is(await doctor(address), 'node-1: 1 pods of the mesh, all right\n');
  t.regex(
    await doctor(address, '--ca', 'localhost:1'),
    /^1 mesh: CA unreachable: localhost:1: .*ECONNREFUSED/,
  );
  t.is(await doctor(address, '--cut'), '0 open pods are being cut off\n');
  proxy.refused.add('u-2');
  await writeRecord(site.podsDir, 'u-2', podRecord({ uid: 'u-2', netns: '/run/netns/none' }));
  await until(async () => (await doctor(address)).startsWith('1 '), { what: 'a finding' });
  t.regex(await doctor(address), /^1 node-1 demo\/u-2: not enrolled: .*none/);
  const [diagnosis] = JSON.parse(
    (await doctor(address, '-o', 'json')).replace(/^1 /, ''),
  ) as Proof[];
  t.like(diagnosis, { node: 'node-1', pods: 2 });
  t.regex(
    await doctor(address, '--agent', 'unix:/none'),
    /^1 the node: node agent unreachable: .*\/none/,
  );
});

test('weft doctor names what a kernel has no conntrack zones for, and the pods are in the mesh without them', async (t) => {
  const site = await agentSite(t);
  const address = `unix:${join(dirname(site.podsDir), 'admin.sock')}`;
  const environment = { ...site.environment, WEFT_ADMIN_ADDRESS: address };
  const pod = await createNetns(t, 'pod');
  await writeRecord(site.podsDir, 'u-1', podRecord({ uid: 'u-1', netns: pod.path }));
  startServingProxy(t, site.socket);
  // In the agent's view of the file system iptables cannot ask the kernel for zones.
  const hide =
    'for file in /usr/lib/*/xtables/libxt_CT.so; do mount --bind /dev/null "$file"; done';
  const enter = ['unshare', '--mount', '--propagation', 'slave', 'sh', '-ec', `${hide}; exec "$@"`];
  spawnAgent(t, { ...site, environment }, [...enter, 'sh']);
  await until(() => site.rows().get('u-1')?.state === 'enabled', { what: 'enabled' });
  t.regex(
    await doctor(address),
    /^1 node-1: missing kernel module: no conntrack zones: .*zone-orig/,
  );
  const rules = await pod.exec('iptables-nft-save');
  t.true(rules.includes('ISTIO_OUTPUT'));
  t.false(rules.includes('--zone'));
});

/** The node agent that follows a real API server and answers the CNI plugin, with every right that it has. */
import { readdir } from 'node:fs/promises';
import type { ExecutionContext } from 'ava';
import type { TestNetns } from '../support/netns-kit.ts';
import { createNetns } from '../support/netns-kit.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';
import type { Cluster, StoredTestObject, TestObject } from './support/cluster.ts';
import {
  ADDRESS,
  agentNode,
  agentOf,
  events,
  redirection,
  sandboxNetns,
} from './support/node-agent.ts';
import type { AgentNode } from './support/node-agent.ts';
import { pod } from './support/objects.ts';
import { addInstalled } from './support/plugin-add.ts';
import { allRightsUsed, refuseStreamedLists, usedRights } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

const MODE = { 'istio.io/dataplane-mode': 'ambient' };

/** Creates a pod that the scheduler has just given to the node: it has no address yet. */
async function scheduled(
  cluster: Cluster,
  namespace: string,
  node: string,
): Promise<StoredTestObject> {
  const object: TestObject = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'web', namespace },
    spec: {
      nodeName: node,
      serviceAccountName: 'default',
      containers: [{ name: 'main', image: 'main' }],
    },
  };
  const created = await cluster.admin.create(`/api/v1/namespaces/${namespace}/pods`, object);
  return { ...object, ...(created as StoredTestObject) };
}

const rulesOf = (netns: TestNetns): Promise<string> => netns.exec('iptables-nft-save');

/** Adds as kubelet does, until the runtime may start the pod. */
async function added(node: AgentNode, pod: string, netns: TestNetns): Promise<void> {
  await until(async () => (await addInstalled(node, pod, netns.path)).code === 0, {
    what: `${pod} starts`,
  });
}

async function podNetns(t: ExecutionContext): Promise<TestNetns> {
  return createNetns(t, 'pod');
}

await kubernetesSuite('node-agent-cni', (test) => {
  test('a starting pod is enrolled by what the plugin tells, before its address or event is known, with every right used', async (t, cluster) => {
    const gateway = await cluster.gateway();
    const site = await agentNode(t, cluster, { via: gateway, cni: true });
    const agent = await agentOf(t, site);
    await until(() => agent.context.readiness.pending().length === 0, { what: 'readiness' });
    const proxy = startServingProxy(t, site.site.socket);
    await until(() => proxy.told.includes('session'), { what: 'the proxy is connected' });
    const plain = await cluster.namespace('plain');
    const member = await cluster.namespace('member', MODE);
    await scheduled(cluster, plain, site.node);
    const stored = await scheduled(cluster, member, site.node);
    const outside = await podNetns(t);
    await added(site, `${plain}/web`, outside);
    t.notRegex(await rulesOf(outside), /ISTIO_/);
    const inside = await sandboxNetns(t, site);
    await added(site, `${member}/web`, inside);
    t.regex(await rulesOf(inside), /--to-ports 15001/);
    t.true(proxy.served.has(stored.metadata.uid));
    await until(async () => (await redirection(cluster, stored)) === 'enabled', {
      what: 'enabled',
    });
    // Kubelet tells the address once the pod runs; the namespace stays the one that the plugin told.
    await cluster.admin.request({
      method: 'PATCH',
      path: `/api/v1/namespaces/${member}/pods/web/status`,
      contentType: 'application/merge-patch+json',
      body: { status: { phase: 'Running', podIP: ADDRESS, podIPs: [{ ip: ADDRESS }] } },
    });
    const probes = (): Promise<string> => site.host.exec('/usr/sbin/nft', 'list', 'ruleset');
    await until(async () => (await probes()).includes(ADDRESS), { what: 'the rule for probes' });
    t.is(agent.state(stored.metadata.uid), 'enabled');
    t.deepEqual(
      proxy.told.filter((word) => word.startsWith('del')),
      [],
    );

    // A runtime that names another pod's namespace would give that pod's traffic this one's identity.
    const thief = await cluster.namespace('thief', MODE);
    const stranger = await scheduled(cluster, thief, site.node);
    const stolen = await addInstalled(site, `${thief}/web`, inside.path);
    t.is(stolen.answer?.['code'], 4);
    t.regex(
      String(stolen.answer?.['msg']),
      new RegExp(`is the network namespace of pod ${member}/web`),
    );
    const wrong = await addInstalled(site, `${thief}/web`, outside.path);
    t.is(wrong.answer?.['code'], 4);
    t.regex(String(wrong.answer?.['msg']), /has none of the addresses 10\.9\.0\.2/);
    t.notRegex(await rulesOf(outside), /ISTIO_/);
    t.false(proxy.served.has(stranger.metadata.uid));

    // Neither the namespace nor the pod has come by the watches.
    const before = gateway.opened;
    gateway.cut();
    await until(() => gateway.opened >= before + 2, { what: 'both watches are open again' });
    gateway.freeze();
    const late = await cluster.namespace('late', MODE);
    const unseen = await scheduled(cluster, late, site.node);
    const second = await podNetns(t);
    await second.ip(`addr add ${ADDRESS}/24 dev lo`);
    await added(site, `${late}/web`, second);
    t.regex(await rulesOf(second), /--to-ports 15001/);
    t.true(proxy.served.has(unseen.metadata.uid));
    gateway.restore();

    const lost = await cluster.namespace('lost', MODE);
    await cluster.apply(pod(lost, 'web', { ip: '10.9.0.9', node: site.node }));
    await until(
      async () => (await events(cluster, lost)).some((text) => /no process of pod/.test(text)),
      { what: 'an Event tells that the namespace is not found' },
    );
    gateway.close();
    const end = await addInstalled(site, `${plain}/unknown`, outside.path);
    t.is(end.code, 1);
    t.regex(String(end.answer?.['msg']), /nobody can tell/);
    gateway.restore();
    t.deepEqual(agent.failures, []);
    await agent.stop();

    // The next agent finds the namespace by the pod's processes.
    await site.proc.addPod(t, inside, stored.metadata.uid);
    // An older API server streams no lists, and an agent whose DaemonSet is gone cleans its node up.
    refuseStreamedLists(t);
    const last = await agentOf(t, site);
    await until(() => last.context.readiness.pending().length === 0, { what: 'readiness' });
    // The proxy connects again when it notices that the former agent is gone.
    await until(() => last.state(stored.metadata.uid) === 'enabled', { what: 'served again' });
    // The proof asks for the NetworkPolicies around enrolled pods.
    await last.ask('GET', '/proof');
    await last.drain();
    t.deepEqual(await readdir(site.cni.netDir), ['10-calico.conflist']);
    t.notRegex(await probes(), /weft-host/);
    await allRightsUsed(cluster, site.account);
    const { used, refused } = await usedRights(cluster, site.account);
    t.deepEqual(refused, []);
    t.deepEqual([...used].toSorted(), [...site.account.rights].toSorted());
  });
});

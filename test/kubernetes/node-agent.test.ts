/** The node agent with a real API server, real namespaces and real rules. */
import { randomBytes } from 'node:crypto';
import type { Proof } from '../../services/node-agent/proof/node-proof.ts';
import { seizeTable } from '../support/pod-faults.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';
import type { Cluster, StoredTestObject } from './support/cluster.ts';
import { Gateway } from './support/gateway.ts';
import { pod } from './support/objects.ts';
import { ADDRESS, agentNode, agentOf, events, redirection, sandbox } from './support/node-agent.ts';
import { usedRights } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

const MODE = { 'istio.io/dataplane-mode': 'ambient' };
const REDIRECTION = 'ambient.istio.io/redirection';

/** A pod on the node, not enrolled yet. */
async function applyPod(
  cluster: Cluster,
  namespace: string,
  node: string,
): Promise<StoredTestObject> {
  const object = pod(namespace, 'web', { ip: ADDRESS, node });
  const [stored] = await cluster.apply({
    ...object,
    metadata: { name: 'web', namespace, labels: {} },
  });
  if (stored === undefined) throw new Error('the pod was not stored');
  return stored;
}

async function label(cluster: Cluster, namespace: string, mode: string | null): Promise<void> {
  await cluster.admin.request({
    method: 'PATCH',
    path: `/api/v1/namespaces/${namespace}`,
    contentType: 'application/merge-patch+json',
    body: { metadata: { labels: { 'istio.io/dataplane-mode': mode } } },
  });
}

await kubernetesSuite('node-agent', (test) => {
  test('a labelled namespace brings its pods into the mesh and out of it, under the agent’s role', async (t, cluster) => {
    const site = await agentNode(t, cluster);
    const { node, account } = site;
    const { socket } = site.site;
    const agent = await agentOf(t, site);
    const namespace = await cluster.namespace('demo');
    const stored = await applyPod(cluster, namespace, node);
    const { uid } = stored.metadata;
    await label(cluster, namespace, 'ambient');
    await until(
      async () => (await events(cluster, namespace)).some((text) => /no process of pod/.test(text)),
      {
        what: 'an Event tells that the namespace is not found',
      },
    );
    const netns = await sandbox(t, site, uid);
    await until(async () => (await redirection(cluster, stored)) === 'pending', {
      what: 'pending without a proxy',
    });
    t.regex(await netns.exec('iptables-nft-save'), /--to-ports 15001/);
    const probes = (): Promise<string> => site.host.exec('/usr/sbin/nft', 'list', 'ruleset');
    await until(async () => (await probes()).includes(`${ADDRESS} comment "${uid}"`), {
      what: 'the rule for probes',
    });
    const proxy = startServingProxy(t, socket);
    await until(async () => (await redirection(cluster, stored)) === 'enabled', {
      what: 'enabled',
    });
    t.deepEqual(proxy.served.get(uid)?.info, { name: 'web', namespace, serviceAccount: 'default' });
    // Somebody else's change does not last.
    await cluster.admin.request({
      method: 'PATCH',
      path: `/api/v1/namespaces/${namespace}/pods/web`,
      contentType: 'application/merge-patch+json',
      body: { metadata: { annotations: { [REDIRECTION]: null } } },
    });
    await until(async () => (await redirection(cluster, stored)) === 'enabled', {
      what: 'enabled anew',
    });
    await cluster.admin.create(
      `/apis/networking.k8s.io/v1/namespaces/${namespace}/networkpolicies`,
      {
        apiVersion: 'networking.k8s.io/v1',
        kind: 'NetworkPolicy',
        metadata: { name: 'closed' },
        spec: { podSelector: {}, policyTypes: ['Ingress'] },
      },
    );
    const { findings } = (await agent.ask('GET', '/proof')) as Proof;
    t.deepEqual(
      findings.filter(({ pod: found }) => found !== null),
      [
        {
          pod: `${namespace}/web`,
          cause: 'NetworkPolicy blocks 15008',
          detail: `${namespace}/closed lets no TCP in to 15008 from any peer`,
        },
      ],
    );
    const release = await seizeTable(netns);
    await until(
      async () => (await events(cluster, namespace)).some((text) => /cut off until/.test(text)),
      { what: 'an Event tells of the cut' },
    );
    await release();
    await until(() => agent.enrolments()[0]?.exposure === undefined, { what: 'its end' });
    await label(cluster, namespace, null);
    await until(async () => (await redirection(cluster, stored)) === undefined, {
      what: 'no annotation',
    });
    await until(() => agent.enrolments().length === 0, { what: 'un-enrolment' });
    t.notRegex(await netns.exec('iptables-nft-save'), /ISTIO_/);
    await until(async () => !(await probes()).includes(ADDRESS), { what: 'no rule for probes' });
    t.deepEqual(agent.failures, []);
    const { refused } = await usedRights(cluster, account);
    t.deepEqual(refused, []);
  });

  test('a static pod is found by the uid that kubelet gave it, and no annotation hides another pod', async (t, cluster) => {
    const site = await agentNode(t, cluster);
    const namespace = await cluster.namespace('static', MODE);
    const hash = randomBytes(16).toString('hex');
    const named = async (name: string, own: string, ip: string): Promise<string> => {
      const object = pod(namespace, name, { ip, node: site.node });
      const annotations = { 'kubernetes.io/config.hash': own };
      const [stored] = await cluster.apply({
        ...object,
        metadata: { ...object.metadata, annotations },
      });
      return stored?.metadata.uid ?? '';
    };
    const uid = await named('web', hash, ADDRESS);
    await named('before', uid, '10.9.0.8');
    await named('after', hash, '10.9.0.9');
    const netns = await sandbox(t, site, hash);
    const agent = await agentOf(t, site);
    await until(() => agent.state(uid) === 'pending', { what: 'the static pod has its rules' });
    t.regex(await netns.exec('iptables-nft-save'), /--to-ports 15001/);
    const other = await applyPod(cluster, await cluster.namespace('other', MODE), site.node);
    await named('thief', other.metadata.uid, '10.9.0.7');
    await site.proc.addPod(t, netns, other.metadata.uid);
    await until(() => agent.state(other.metadata.uid) === 'pending', { what: 'the other pod' });
  });

  test('a pod stays enabled while both its agent and its proxy are new', async (t, cluster) => {
    const site = await agentNode(t, cluster);
    const first = await agentOf(t, site);
    const namespace = await cluster.namespace('demo', MODE);
    const stored = await applyPod(cluster, namespace, site.node);
    const { uid } = stored.metadata;
    await sandbox(t, site, uid);
    const proxy = startServingProxy(t, site.site.socket);
    await until(async () => (await redirection(cluster, stored)) === 'enabled', {
      what: 'enabled',
    });
    await first.stop();
    await proxy.stop();
    const second = await agentOf(t, site);
    await until(() => second.state(uid) === 'pending', { what: 'the pod waits for a proxy' });
    // The agent writes what it wants over it.
    await cluster.admin.request({
      method: 'PATCH',
      path: `/api/v1/namespaces/${namespace}/pods/web`,
      contentType: 'application/merge-patch+json',
      body: { metadata: { annotations: { [REDIRECTION]: 'mine' } } },
    });
    await until(async () => (await redirection(cluster, stored)) !== 'mine', { what: 'its own' });
    t.is(await redirection(cluster, stored), 'enabled');
  });

  test('while the API server is away pods stay, and a change made meanwhile is found afterwards', async (t, cluster) => {
    const gateway = await Gateway.open(cluster.server.url, t);
    const site = await agentNode(t, cluster, { via: gateway });
    const { node } = site;
    const { socket } = site.site;
    const agent = await agentOf(t, site);
    const namespace = await cluster.namespace('demo', MODE);
    const stored = await applyPod(cluster, namespace, node);
    await sandbox(t, site, stored.metadata.uid);
    const proxy = startServingProxy(t, socket);
    await until(async () => (await redirection(cluster, stored)) === 'enabled', {
      what: 'enabled',
    });
    gateway.close();
    await until(() => agent.lines.some(({ message }) => message.startsWith('kubernetes.')), {
      what: 'the agent misses the API server',
    });
    await cluster.delete(stored);
    t.is(agent.state(stored.metadata.uid), 'enabled');
    gateway.restore();
    await until(() => agent.enrolments().length === 0, { what: 'the pod is gone' });
    await until(() => proxy.told.includes(`del ${stored.metadata.uid}`), { what: 'Del' });
  });
});

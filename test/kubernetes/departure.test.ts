/** The reasons for which an agent that ends leaves its node, asked of a real API server. */
import { present } from '../../lib/errors/assert.ts';
import { Departing } from '../../services/node-agent/kubernetes/departing.ts';
import { readDeparture } from '../../services/node-agent/kubernetes/departure.ts';
import type { Departure } from '../../services/node-agent/kubernetes/departure.ts';
import { keptLog } from '../support/actor-context.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/until.ts';
import type { Cluster, TestObject } from './support/cluster.ts';
import { underRole } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

const ACCOUNT = 'weft-node-agent';
const LABELS = { app: 'weft-node-agent' };

function daemonSet(namespace: string): TestObject {
  return {
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { name: 'weft-node-agent', namespace },
    spec: {
      selector: { matchLabels: LABELS },
      template: {
        metadata: { labels: LABELS },
        spec: { containers: [{ name: 'main', image: 'main' }] },
      },
    },
  };
}

function agentPod(namespace: string, name: string, node: string): TestObject {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace },
    spec: {
      nodeName: node,
      serviceAccountName: ACCOUNT,
      containers: [{ name: 'main', image: 'main' }],
    },
  };
}

/** An agent whose token is bound to its pod, as kubelet gives it. */
interface Agent {
  readonly pod: TestObject;
  readonly departure: () => Promise<Departure>;
}

/** The times that the agent has asked for its DaemonSet. */
async function looks(cluster: Cluster, namespace: string): Promise<number> {
  const requests = await cluster.audited(`system:serviceaccount:${namespace}:${ACCOUNT}`);
  return requests.filter(({ resource }) => resource === 'daemonsets').length;
}

await kubernetesSuite('departure', (test) => {
  test('an agent leaves when its DaemonSet is gone, and stays when it has lost its rights, its pod or its account', async (t, cluster) => {
    const namespace = await cluster.namespace('departure');
    const node = `node-${namespace}`;
    await underRole(cluster, ACCOUNT, { namespace });
    const cleaner = cluster.client();
    t.teardown(() => cleaner.delete(`/api/v1/nodes/${node}`));
    await cluster.apply({ apiVersion: 'v1', kind: 'Node', metadata: { name: node } });
    const agents = daemonSet(namespace);
    await cluster.apply(agents);
    const place = { namespace, daemonSet: ACCOUNT, node };
    const agent = async (name: string): Promise<Agent> => {
      const pod = agentPod(namespace, name, node);
      const [stored] = await cluster.apply(pod);
      const { uid } = present(stored, 'the pod is stored').metadata;
      const token = await cluster.token(namespace, ACCOUNT, { pod: { name, uid } });
      const client = cluster.client({ token });
      return { pod, departure: () => readDeparture(client, place) };
    };
    const refused = (one: Agent): Promise<Departure> =>
      until(
        async () => {
          const departure = await one.departure();
          return /Unauthorized/.test(departure.reason) ? departure : null;
        },
        // An API server remembers a token for 10 s.
        { what: 'the API server refuses the token' },
      );
    const [killed, rolled, last] = [
      await agent('killed'),
      await agent('rolled'),
      await agent('last'),
    ];
    for (const one of [killed, rolled, last]) {
      t.deepEqual(await one.departure(), {
        leaves: false,
        told: true,
        reason: 'the DaemonSet stays',
      });
    }
    await cluster.delete(killed.pod);
    t.false((await refused(killed)).leaves, 'its pod was deleted by force');
    await cluster.delete(agents);
    t.true((await last.departure()).leaves, 'the DaemonSet is gone');
    await cluster.apply(agents);
    const rbac = '/apis/rbac.authorization.k8s.io/v1';
    await cluster.admin.delete(`${rbac}/namespaces/${namespace}/rolebindings/weft-node-agent-cni`);
    const forbidden = await until(
      async () => {
        const departure = await rolled.departure();
        return /forbidden/.test(departure.reason) ? departure : null;
      },
      { what: 'the rights are gone' },
    );
    t.false(forbidden.leaves, 'its rights are gone');
    await cluster.admin.delete(`/api/v1/namespaces/${namespace}/serviceaccounts/${ACCOUNT}`);
    t.false((await refused(rolled)).leaves, 'its account is gone');
  });

  test('a departing agent notices while it works that its DaemonSet is back', async (t, cluster) => {
    const namespace = await cluster.namespace('departing');
    const node = `node-${namespace}`;
    const { token } = await underRole(cluster, ACCOUNT, { namespace });
    const cleaner = cluster.client();
    t.teardown(() => cleaner.delete(`/api/v1/nodes/${node}`));
    await cluster.apply({ apiVersion: 'v1', kind: 'Node', metadata: { name: node } });
    const clock = new FakeClock();
    const { log, lines } = keptLog('node-agent');
    const connection = {
      kubeconfig: await cluster.kubeconfig({ token }),
      serviceHost: null,
      servicePort: null,
    };
    using departing = await Departing.open({ connection, namespace }, node, { clock, log });
    t.true(await departing.leaves());
    t.false(await departing.isReplacedDuring(Promise.resolve()));
    await t.throwsAsync(departing.isReplacedDuring(Promise.reject(new Error('the work'))), {
      message: 'the work',
    });
    const work = Promise.withResolvers<void>();
    let replaced: boolean | null = null;
    const watched = departing.isReplacedDuring(work.promise).then((answer) => {
      replaced = answer;
    });
    const look = async (): Promise<boolean> => {
      await clock.advance(clock.nextInMs ?? 0);
      return replaced !== null;
    };
    const before = await looks(cluster, namespace);
    await until(async () => (await looks(cluster, namespace)) > before + 1 || (await look()), {
      what: 'two looks',
    });
    t.is(replaced, null);
    await cluster.apply(daemonSet(namespace));
    await until(look, { what: 'the DaemonSet is seen' });
    await watched;
    t.true(replaced);
    t.deepEqual(
      lines.map(({ message }) => message),
      ['agent.departure-decided', 'agent.departure-ended'],
    );
  });
});

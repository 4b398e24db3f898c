/** The reasons for which an agent that ends leaves its node, asked of a real API server. */
import { systemClock } from '../../lib/clock/clock.ts';
import { readDeparture } from '../../services/node-agent/kubernetes/departure.ts';
import type { TestObject } from './support/cluster.ts';
import { underRole } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

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

await kubernetesSuite('departure', (test) => {
  test('the plugin stays in a roll-out and goes with the DaemonSet, also when rights and account go with it', async (t, cluster) => {
    const namespace = await cluster.namespace('departure');
    const node = `node-${namespace}`;
    const { token } = await underRole(cluster, 'weft-node-agent', { namespace });
    const cleaner = cluster.client();
    t.teardown(() => cleaner.delete(`/api/v1/nodes/${node}`));
    await cluster.apply({ apiVersion: 'v1', kind: 'Node', metadata: { name: node } });
    await cluster.apply(daemonSet(namespace));
    const client = cluster.client({ token });
    const place = { namespace, daemonSet: 'weft-node-agent', node };
    const departure = () => readDeparture(client, place, systemClock);
    t.deepEqual(await departure(), { leaves: false, reason: 'the DaemonSet stays' });
    await cluster.delete(daemonSet(namespace));
    t.true((await departure()).leaves, 'the DaemonSet is gone');
    const rbac = '/apis/rbac.authorization.k8s.io/v1';
    await cluster.admin.delete(`${rbac}/namespaces/${namespace}/rolebindings/weft-node-agent-cni`);
    const asked = departure();
    await cluster.admin.delete(`/api/v1/namespaces/${namespace}/serviceaccounts/weft-node-agent`);
    t.true((await asked).leaves, 'the account is gone');
  });
});

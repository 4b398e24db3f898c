/** The CA has the rights that it uses, and no others. */
import { rotate } from '../../services/ca/operations.ts';
import { until } from '../support/until.ts';
import { boundToken, caCluster } from './support/ca.ts';
import { allRightsUsed, refuseStreamedLists, usedRights } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

await kubernetesSuite('rbac-ca', (test) => {
  test('the CA uses every right of its roles, and needs no other', async (t, cluster) => {
    const ca = await caCluster(t, cluster);
    const apps = await ca.namespace('apps');
    const [proxy] = await cluster.apply(
      ca.pod(ca.system, 'ztunnel', 'node-1'),
      ca.pod(apps, 'web', 'node-1'),
    );
    const token = await boundToken(cluster, proxy);
    const web = `spiffe://cluster.local/ns/${apps}/sa/web`;
    const first = await ca.start();
    await first.ask(token, web);
    const { stores, config } = await ca.state();
    await rotate(stores.state, config, Date.now());
    const stepped = (): boolean =>
      first.actor.lines.some((line) => line.message === 'root-rotation.stepped');
    await until(stepped, { what: 'the leader to write the state' });
    await first.actor.stop();
    refuseStreamedLists(t);
    const second = await ca.start();
    await second.ask(token, web);
    await allRightsUsed(cluster, ca.account);
    await second.actor.stop();
    const { used, refused } = await usedRights(cluster, ca.account);
    t.deepEqual(refused, []);
    t.deepEqual([...used].toSorted(), [...ca.account.rights].toSorted());
  });
});

/** Actors have the rights that they use, and no others. */
import { ADDRESS_TYPE } from '../../lib/xds/type-urls.ts';
import { openTestStream } from '../support/delta-test-client.ts';
import { ownPort } from '../support/ports.ts';
import { until } from '../support/until.ts';
import type { Cluster, StoredTestObject, TestObject } from './support/cluster.ts';
import { startCa, startControlPlane } from './support/control-plane.ts';
import { service } from './support/objects.ts';
import { NOT_READY, taintedNode, taintsOf } from './support/nodes.ts';
import { allRightsUsed, refuseStreamedLists, underRole, usedRights } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

const NO_WAYPOINT = { 'istio.io/use-waypoint': 'missing' };

/** Objects whose status the control plane writes: each asks for a waypoint that is not there. */
function objectsWithStatus(namespace: string): TestObject[] {
  return [
    service(namespace, 'web', { labels: NO_WAYPOINT }),
    {
      apiVersion: 'networking.istio.io/v1',
      kind: 'ServiceEntry',
      metadata: { name: 'outside', namespace, labels: NO_WAYPOINT },
      spec: {
        hosts: [`outside.${namespace}.example.com`],
        resolution: 'DNS',
        ports: [{ number: 443, name: 'tls', protocol: 'TLS' }],
      },
    },
    {
      apiVersion: 'networking.istio.io/v1',
      kind: 'WorkloadEntry',
      metadata: { name: 'machine', namespace, labels: NO_WAYPOINT },
      spec: { address: '192.0.2.30' },
    },
    {
      apiVersion: 'security.istio.io/v1',
      kind: 'AuthorizationPolicy',
      metadata: { name: 'none', namespace },
      spec: {},
    },
  ];
}

async function hasConditions(cluster: Cluster, object: TestObject): Promise<boolean> {
  const { status } = (await cluster.get(object)) as StoredTestObject & {
    readonly status?: { readonly conditions?: readonly unknown[] };
  };
  return (status?.conditions?.length ?? 0) > 0;
}

async function createWebhook(cluster: Cluster, namespace: string): Promise<string> {
  const name = `weft-validator-${namespace}`;
  const path = '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations';
  await cluster.admin.create(path, {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingWebhookConfiguration',
    metadata: { name },
    webhooks: [
      {
        name: 'validation.weft.io',
        clientConfig: { url: 'https://127.0.0.1:1/validate' },
        rules: [
          {
            apiGroups: ['none.weft.io'],
            apiVersions: ['*'],
            operations: ['CREATE'],
            resources: ['*'],
          },
        ],
        failurePolicy: 'Ignore',
        sideEffects: 'None',
        admissionReviewVersions: ['v1'],
      },
    ],
  });
  return `${path}/${name}`;
}

await kubernetesSuite('rbac', (test) => {
  test('the control plane uses every right of its roles, and needs no other', async (t, cluster) => {
    const namespace = await cluster.namespace('rights');
    const account = await underRole(cluster, 'weft-control-plane', {
      namespace,
      only: ['weft-control-plane-status-istio-system'],
    });
    const webhook = await createWebhook(cluster, namespace);
    const cleaner = cluster.client();
    t.teardown(async () => {
      await cleaner.delete(webhook);
    });
    const objects = objectsWithStatus(namespace);
    await cluster.apply(...objects);
    const node = await taintedNode(cluster, namespace);
    const options = { rootNamespace: namespace, token: account.token };
    const plane = await startControlPlane(t, cluster, {
      ...options,
      environment: { WEFT_CONTROL_PLANE_WEBHOOK_LISTEN: `127.0.0.1:${await ownPort()}` },
    });
    await plane.ready();
    const audiences = ['istio-ca'];
    const caller = plane.target(await cluster.token(namespace, 'ztunnel', { audiences }));
    const stream = openTestStream(t, caller);
    const proxy = {
      id: `ztunnel~10.244.1.9~ztunnel-1.${namespace}~${namespace}.svc.cluster.local`,
    };
    stream.send({ typeUrl: ADDRESS_TYPE, node: proxy });
    await stream.response(ADDRESS_TYPE, 0);
    await until(
      async () => {
        for (const object of objects) if (!(await hasConditions(cluster, object))) return false;
        const { webhooks } = (await cluster.admin.get(webhook)) as {
          readonly webhooks: readonly { readonly clientConfig: { readonly caBundle?: string } }[];
        };
        return (
          webhooks[0]?.clientConfig.caBundle !== undefined &&
          !(await taintsOf(cluster, node)).includes(NOT_READY)
        );
      },
      { what: 'everything is written' },
    );
    refuseStreamedLists(t);
    await plane.hosted.stop();
    const other = await startControlPlane(t, cluster, {
      ...options,
      ca: await startCa(t, namespace),
      environment: { WEFT_CONTROL_PLANE_WEBHOOK_LISTEN: `127.0.0.1:${await ownPort()}` },
    });
    await other.ready();
    await allRightsUsed(cluster, account);
    await other.hosted.stop();
    const { used, refused } = await usedRights(cluster, account);
    // Other tests have objects of these kinds, and this account may write the status of its own only.
    const own = refused.filter(
      (request) => !request.includes('/status') || request.includes(` ${namespace}/`),
    );
    t.deepEqual(own, []);
    t.deepEqual([...used].toSorted(), [...account.rights].toSorted());
  });
});

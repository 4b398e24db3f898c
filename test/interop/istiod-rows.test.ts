/** Tests that Weft's control plane gives the same workloads, services and policies as istiod for the same objects, row by row. */
import { isDeepStrictEqual } from 'node:util';
import ava from 'ava';
import { upstreamRows } from './rows/upstream.ts';
import { DEVIATIONS } from './rows/deviations.ts';
import { podComparisons } from './rows/pods.ts';
import { policyComparisons } from './rows/policies.ts';
import { serviceComparisons } from './rows/services.ts';
import { waypointComparisons } from './rows/waypoints.ts';
import { startControlPlane } from '../kubernetes/support/control-plane.ts';
import { ownPort } from '../support/ports.ts';
import { until } from '../support/until.ts';
import { istioSuite, readerToken } from './support/istio-cluster.ts';
import { ISTIOD_NAME, ROOT_NAMESPACE } from './support/istiod.ts';
import { viewMesh } from './support/mesh-view.ts';

const COMPARISONS = [
  ...podComparisons,
  ...serviceComparisons,
  ...waypointComparisons,
  ...policyComparisons,
];

await istioSuite('istiod-rows', (test) => {
  ava('every upstream row is compared, or its deviation is listed', async (t) => {
    const rows = await upstreamRows();
    t.true(rows.size > 40, 'the specification was read');
    const compared = new Set(COMPARISONS.flatMap((comparison) => comparison.rows));
    const missing = [...rows].filter(([id]) => !compared.has(id) && !DEVIATIONS.has(id));
    t.deepEqual(missing, []);
    const unknown = [...compared, ...DEVIATIONS.keys()].filter((id) => !rows.has(id));
    t.deepEqual(unknown, []);
  });

  test('both control planes give the same for the same objects', async (t, { cluster, istiod }) => {
    const placed: { readonly namespace: string; readonly title: string }[] = [];
    for (const comparison of COMPARISONS) {
      const namespace = await cluster.namespace('row', comparison.labels);
      for (const object of comparison.objects(namespace)) {
        if (typeof object === 'string') await cluster.applyText(object);
        else await cluster.apply(object);
      }
      placed.push({ namespace, title: comparison.title });
    }
    const port = await ownPort();
    const plane = await startControlPlane(t, cluster, {
      rootNamespace: ROOT_NAMESPACE,
      environment: { WEFT_CONTROL_PLANE_LISTEN: `127.0.0.1:${port}` },
    });
    await plane.ready();
    const ours = await viewMesh(
      t,
      { address: `https://127.0.0.1:${port}`, rootCa: plane.ca.bundlePath, name: null },
      await readerToken(cluster),
    );
    const theirs = await viewMesh(
      t,
      { address: istiod.address, rootCa: istiod.rootPath, name: ISTIOD_NAME },
      await readerToken(cluster),
    );
    const same = (namespace: string): boolean =>
      isDeepStrictEqual(ours(namespace), theirs(namespace));
    // A failure of the wait is told below, resource by resource.
    await until(() => placed.every(({ namespace }) => same(namespace)), {
      what: 'the control planes to agree',
    }).catch(() => undefined);
    for (const { namespace, title } of placed)
      t.deepEqual(ours(namespace), theirs(namespace), title);
    t.true(Object.keys(theirs(placed[0]?.namespace ?? '')).length > 3);
  });
});

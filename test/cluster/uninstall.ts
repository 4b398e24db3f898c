/** Removes Weft from a running cluster whose pods are in the mesh. */
import type { ExecutionContext } from 'ava';
import type { TestCluster } from './support/cluster.ts';
import { newConnectionsWhile } from './support/load.ts';
import type { LoadResult } from './support/load.ts';
import { isEnrolled, podPerNode, podsOf } from './support/pods.ts';
import { marks } from './support/snapshot.ts';
import { SYSTEM, uninstallWeft } from './support/weft.ts';

/**
 * Checks that an uninstallation leaves no mark on pods of the mesh, nor anything of its own, and that new connections between pods
 * do not fail meanwhile.
 */
export async function uninstallUnderLoad(
  t: ExecutionContext,
  cluster: TestCluster,
  { helm, namespaces }: { readonly helm: string; readonly namespaces: readonly string[] },
): Promise<void> {
  const loads: LoadResult[] = [];
  let body = (): Promise<void> => uninstallWeft(cluster, helm);
  for (const namespace of namespaces) {
    for (const pod of await podsOf(cluster, namespace, 'web')) t.true(isEnrolled(pod));
    for (const pod of await podPerNode(cluster, namespace, 'client')) {
      const inner = body;
      body = async () => {
        const url = `http://web.${namespace}/`;
        loads.push(await newConnectionsWhile(cluster, { namespace, pod }, url, inner));
      };
    }
  }
  await body();
  for (const { fresh, failures } of loads) {
    t.log(`${fresh} new connections`);
    t.true(fresh > 0);
    t.deepEqual(failures, []);
  }
  for (const namespace of namespaces) t.deepEqual(await marks(cluster, namespace), []);
  const kinds = 'jobs,pods,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings';
  const left = await cluster.kubectl('get', kinds, '-n', SYSTEM, '-o', 'name');
  t.deepEqual(
    left.split('\n').filter((name) => name.includes('weft')),
    [],
  );
}

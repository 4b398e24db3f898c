/** Measures how long pods take from their creation to being ready. */
import { createInterface } from 'node:readline';
import { present } from '../../../lib/errors/assert.ts';
import { until } from '../../support/until.ts';
import type { TestCluster } from './cluster.ts';
import { PAUSE_IMAGE } from './images.ts';
import { isReady } from './pods.ts';
import type { ClusterPod } from './pods.ts';

/** Pods that start at a time. */
const PARALLEL = 2;

/** Starts so many pods on a node, a few at a time, and leaves them there; returns the milliseconds of each, sorted. */
export async function startTimes(
  { objects }: TestCluster,
  { namespace, node, count }: { namespace: string; node: string; count: number },
): Promise<readonly number[]> {
  const end = new AbortController();
  const ready = new Map<string, number>();
  const stream = await objects.admin.stream({
    path: `/api/v1/namespaces/${namespace}/pods`,
    query: { watch: 'true' },
    signal: end.signal,
  });
  const lines = createInterface({ input: stream });
  lines.on('error', (error) => {
    // The end of the measurement cuts the stream.
    if (!end.signal.aborted) throw error;
  });
  lines.on('line', (line) => {
    const { object } = JSON.parse(line) as { readonly object: ClusterPod };
    const { name } = object.metadata;
    if (!ready.has(name) && isReady(object)) ready.set(name, performance.now());
  });
  const times: number[] = [];
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < count) {
      const name = `one-${next}`;
      next += 1;
      const start = performance.now();
      await objects.apply({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name, namespace },
        spec: {
          nodeName: node,
          terminationGracePeriodSeconds: 0,
          containers: [{ name: 'pause', image: PAUSE_IMAGE, imagePullPolicy: 'Never' }],
        },
      });
      await until(() => ready.has(name), { what: `${name} is ready` });
      times.push(present(ready.get(name), 'a time') - start);
    }
  };
  try {
    await Promise.all(Array.from({ length: PARALLEL }, lane));
  } finally {
    end.abort();
  }
  return times.sort((a, b) => a - b);
}

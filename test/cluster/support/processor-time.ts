/** Measures the processor time of Weft's containers. */
import { present } from '../../../lib/errors/assert.ts';
import type { TestCluster } from './cluster.ts';
import { inContainer, weftContainers } from './containers.ts';

const MILLION = 1_000_000;

/** Processor time of each running container in nanoseconds, by its pod and name. */
async function read(cluster: TestCluster): Promise<ReadonlyMap<string, number>> {
  const file = '/sys/fs/cgroup/cpuacct/cpuacct.usage';
  const used = (await weftContainers(cluster)).map(
    async (container) =>
      [
        `${container.pod}/${container.name}`,
        Number(await inContainer(cluster, container, 'cat', file)),
      ] as const,
  );
  return new Map(await Promise.all(used));
}

/**
 * Runs `body`; returns the thousandths of a processor that a container of each name took meanwhile: those of the one that took most.
 * Containers that ended are left out.
 */
export async function processorTimes(
  cluster: TestCluster,
  body: () => Promise<unknown>,
): Promise<ReadonlyMap<string, number>> {
  const before = await read(cluster);
  const start = performance.now();
  await body();
  const elapsedMs = performance.now() - start;
  const most = new Map<string, number>();
  for (const [place, after] of await read(cluster)) {
    const since = before.get(place);
    if (since === undefined) continue;
    const name = present(place.split('/')[1], 'a name');
    const share = ((after - since) / MILLION / elapsedMs) * 1_000;
    most.set(name, Math.max(share, most.get(name) ?? 0));
  }
  return most;
}

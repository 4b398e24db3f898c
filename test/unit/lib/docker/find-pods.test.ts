import test from 'ava';
import type { ContainerDetails, ContainerSummary } from '../../../../lib/docker/engine-view.ts';
import { findPods } from '../../../../lib/docker/find-pods.ts';

const SECOND = 1_700_000_000;

/** Returns an engine's answers about a container that claims to be `demo/web`, created `ms` after the second. */
function claimant(
  id: string,
  ms: number,
): { summary: ContainerSummary; details: ContainerDetails } {
  const created = new Date(SECOND * 1000 + ms).toISOString();
  const summary = {
    Id: id,
    Created: SECOND,
    Labels: { 'weft.io/pod': 'demo/web' },
    HostConfig: { NetworkMode: 'demo' },
  } as unknown as ContainerSummary;
  const details = {
    Id: id,
    Created: created,
    State: { Running: true, Pid: 7, StartedAt: created },
    HostConfig: {},
    NetworkSettings: { Networks: { demo: { IPAddress: '10.0.0.1' } } },
  } as unknown as ContainerDetails;
  return { summary, details };
}

test('of two containers created in one second the older is the pod, in whatever order they are listed', async (t) => {
  const made = [claimant('older', 100), claimant('newer', 101)];
  for (const listed of [made, made.toReversed()]) {
    const refused: string[] = [];
    const engine = {
      list: () => Promise.resolve(listed.map(({ summary }) => summary)),
      inspectIfPresent: (id: string) =>
        Promise.resolve(made.find(({ details }) => details.Id === id)?.details ?? null),
    };
    const found = await findPods(engine, {
      has: () => true,
      unnamed: 'node-1',
      refused: (id, problem) => refused.push(`${id}: ${problem}`),
    });
    t.is(found.get('demo/web')?.id, 'older');
    t.deepEqual(refused, ['newer: demo/web exists already']);
  }
});

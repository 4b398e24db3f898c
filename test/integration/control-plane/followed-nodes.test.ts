/** Tests that nodes are followed from their first pod to their last, with a real store and a real Redis. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import type { Redis } from 'ioredis';
import { systemClock } from '../../../lib/clock/clock.ts';
import { EnrolmentFollower } from '../../../services/control-plane/enrolments/enrolment-follower.ts';
import { ObjectStore } from '../../../services/control-plane/store/object-store.ts';
import { applyManifests } from '../../../services/control-plane/store/transactions.ts';
import { capturedLog, openBus } from '../../support/bus.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { admissionContext, finish, manifestsOf, namespace } from '../../support/mesh-objects.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

interface Rig {
  readonly follower: EnrolmentFollower;
  readonly admin: Redis;
  readonly lines: readonly Record<string, unknown>[];
  /** Puts a pod on each of these nodes, or removes it. */
  readonly apply: (nodes: readonly string[]) => Promise<void>;
  readonly remove: (nodes: readonly string[]) => Promise<void>;
}

const pods = (nodes: readonly string[]): string =>
  nodes
    .map(
      (node) =>
        `apiVersion: v1\nkind: Pod\nmetadata: {name: pod-${node}, namespace: default}\nspec: {nodeName: ${node}, containers: [{name: app}]}\n`,
    )
    .join('---\n');

async function rig(t: ExecutionContext, nodesMax: number): Promise<Rig> {
  const redis = await startTestRedis(t);
  const dir = await makeScratch('followed');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const { log, lines } = capturedLog();
  const store = await ObjectStore.open(join(dir, 'state'), { log, clock: systemClock });
  t.teardown(() => store.close());
  const { bus } = openBus(t, redis.config('control-plane'), 'control-plane');
  await until(() => bus.connected, { what: 'the bus' });
  const deps = { bus, store, clock: systemClock, log, malformed: () => undefined, nodesMax };
  const follower = new EnrolmentFollower(deps);
  t.teardown(() => follower.close());
  return {
    follower,
    admin: redis.client(),
    lines,
    apply: async (nodes) => {
      await store.transact((draft) =>
        finish(
          applyManifests(
            draft,
            manifestsOf(`${namespace('default')}---\n${pods(nodes)}`),
            null,
            admissionContext(),
          ),
        ),
      );
    },
    remove: async (nodes) => {
      await store.transact((draft) => {
        for (const node of nodes) draft.delete(`Pod/default/pod-${node}`);
      });
    },
  };
}

/** Lists the connections of the control plane. */
async function clients(admin: Redis): Promise<string[]> {
  await until(() => admin.status === 'ready', { what: 'Redis' });
  const list = String(await admin.call('CLIENT', 'LIST')).split('\n');
  return list.filter((line) => line.includes('user=control-plane'));
}

const names = (from: number, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `autoscaled-${from + index}`);

test('nodes that come and go leave no reader and no connection behind', async (t) => {
  const { follower, admin, apply, remove } = await rig(t, 10);
  const { length: others } = await clients(admin);
  await apply(['stays']);
  await until(async () => (await clients(admin)).length === others + 1, { what: 'its reader' });
  for (let round = 0; round < 10; round += 1) {
    const nodes = names(round * 5, 5);
    await apply(nodes);
    t.is(follower.size, 6);
    await remove(nodes);
    t.is(follower.size, 1);
  }
  await until(async () => (await clients(admin)).length === others + 1, {
    what: 'the connections to end',
  });
});

test('at the bound further nodes wait, and are followed when there is room', async (t) => {
  const { follower, lines, apply, remove } = await rig(t, 3);
  await apply(names(0, 5));
  t.is(follower.size, 3);
  t.true(lines.some(({ message }) => message === 'enrolments.node-refused'));
  await remove(names(0, 2));
  t.is(follower.size, 3, 'the two that waited are followed');
  await remove(names(2, 3));
  t.is(follower.size, 0);
});

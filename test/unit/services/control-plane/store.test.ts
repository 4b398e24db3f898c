import { readdir, rm } from 'node:fs/promises';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { parsePrefix } from '../../../../lib/net/prefix.ts';
import { Journal } from '../../../../services/control-plane/store/journal.ts';
import { ObjectStore } from '../../../../services/control-plane/store/object-store.ts';
import { allocateAddress } from '../../../../services/control-plane/store/addresses.ts';
import { Draft, MeshState } from '../../../../services/control-plane/store/state.ts';
import { applyManifests } from '../../../../services/control-plane/store/transactions.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { admissionContext, manifestsOf, namespace } from '../../../support/mesh-objects.ts';
import { makeScratch } from '../../../support/leftovers.ts';

async function folder(t: ExecutionContext): Promise<string> {
  const dir = await makeScratch('store');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

const service = (name: string): string =>
  `apiVersion: v1\nkind: Service\nmetadata: {name: ${name}, namespace: demo}\nspec: {ports: [{port: 80}]}\n`;

test('addresses are allocated until the range is used up', (t) => {
  const range = parsePrefix('10.0.0.0/27');
  const taken = new Set<string>();
  for (let count = 0; count < 15; count += 1) {
    const ip = allocateAddress(range, 'owner', (candidate) => taken.has(candidate));
    t.false(taken.has(ip));
    taken.add(ip);
  }
  t.false(taken.has('10.0.0.31'), 'the broadcast address');
  t.throws(() => allocateAddress(range, 'owner', (candidate) => taken.has(candidate)), {
    code: 'STATE_CONFLICT',
    message: 'no address is left in 10.0.0.0/27',
  });
});

test('an object made again gets its address back', (t) => {
  const range = parsePrefix('fd00:96::/112');
  const free = (): boolean => false;
  t.is(allocateAddress(range, 'a', free), allocateAddress(range, 'a', free));
  t.not(allocateAddress(range, 'a', free), allocateAddress(range, 'b', free));
});

test('a draft leaves the state alone and sees its own changes', (t) => {
  const state = new MeshState();
  const first = new Draft(state);
  applyManifests(
    first,
    manifestsOf(`${namespace('demo')}---\n${service('a')}`),
    null,
    admissionContext(),
  );
  t.is(state.size, 0);
  for (const change of first.changes) state.apply(change);
  const second = new Draft(state);
  second.delete('Service/demo/a');
  t.deepEqual([...second.inNamespace('demo')], []);
  t.is([...state.inNamespace('demo')].length, 1);
  const before = state.get('Service/demo/a')?.object;
  const held = before?.kind === 'Service' ? (before.spec.clusterIP ?? '') : '';
  t.is(state.addressOwner(held), 'Service/demo/a');
  t.is(second.addressOwner(held), undefined, 'free again in the draft');
});

test('folding keeps everything and leaves one journal', async (t) => {
  const dir = await folder(t);
  const { log } = keptLog('store');
  const context = admissionContext();
  const store = await ObjectStore.open(dir, log);
  await store.transact((draft) =>
    applyManifests(draft, manifestsOf(`${namespace('demo')}---\n${service('a')}`), null, context),
  );
  await store.close();
  const loaded = await Journal.open(dir);
  const state = new MeshState();
  for (const change of loaded.changes) state.apply(change);
  await loaded.journal.fold(state.contents());
  await loaded.journal.append([[{ op: 'delete', key: 'Namespace//demo' }]]);
  await loaded.journal.close();
  t.deepEqual((await readdir(dir)).sort(), ['journal.1', 'snapshot.json']);
  const again = await ObjectStore.open(dir, log);
  t.teardown(() => again.close());
  t.deepEqual(
    [...again.state.ofKind('Service')].map(({ metadata }) => metadata.name),
    ['a'],
  );
  t.is(again.state.count('Namespace'), 0);
});

test('a plan that throws changes nothing, and those beside it go through', async (t) => {
  const { log } = keptLog('store');
  const store = await ObjectStore.open(await folder(t), log);
  t.teardown(() => store.close());
  const context = admissionContext();
  const told: number[] = [];
  store.onCommit((changes) => told.push(changes.length));
  const results = await Promise.allSettled([
    store.transact((draft) => applyManifests(draft, manifestsOf(namespace('demo')), null, context)),
    store.transact((draft) => {
      draft.delete('Namespace//demo');
      throw new Error('no');
    }),
    store.transact((draft) => applyManifests(draft, manifestsOf(service('a')), null, context)),
  ]);
  t.deepEqual(
    results.map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled'],
  );
  t.is(store.state.size, 2);
  t.deepEqual(told, [1, 1]);
  await store.close();
  await t.throwsAsync(
    store.transact(() => undefined),
    { code: 'STATE_UNAVAILABLE' },
  );
});

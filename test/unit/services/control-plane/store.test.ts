import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { parsePrefix } from '../../../../lib/net/prefix.ts';
import { MAX_MESSAGE_ROWS, STORE_IDLE_MS } from '../../../../services/control-plane/limits.ts';
import { DiskStore } from '../../../../services/control-plane/store/disk-store.ts';
import { ObjectStore } from '../../../../services/control-plane/store/object-store.ts';
import { allocateAddress } from '../../../../services/control-plane/store/addresses.ts';
import { Draft, CommittedState } from '../../../../services/control-plane/store/state.ts';
import { StoreThread } from '../../../../services/control-plane/store/store-thread.ts';
import {
  applyFile,
  applyManifests,
} from '../../../../services/control-plane/store/transactions.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { admissionContext, finish, manifestsOf, namespace } from '../../../support/mesh-objects.ts';
import { makeScratch } from '../../../support/leftovers.ts';
import { until } from '../../../support/until.ts';

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
  const state = new CommittedState();
  const first = new Draft(state);
  finish(
    applyManifests(
      first,
      manifestsOf(`${namespace('demo')}---\n${service('a')}`),
      null,
      admissionContext(),
    ),
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

test('what was stored is there after a restart, in the order in which it came', async (t) => {
  const dir = await folder(t);
  const { log } = keptLog('store');
  const context = admissionContext();
  const store = await ObjectStore.open(dir, { log, clock: systemClock });
  const apply = (text: string): Promise<unknown> =>
    store.transact((draft) =>
      finish(applyFile(draft, { name: 'f', hash: text }, manifestsOf(text), context)),
    );
  await apply(`${namespace('demo')}---\n${service('b')}---\n${service('a')}`);
  // The changed object keeps its place; the deleted and recreated one does not.
  const changed = service('b').replace('demo}', 'demo, labels: {new: "1"}}');
  await apply(`${namespace('demo')}---\n${changed}`);
  const last = `${namespace('demo')}---\n${changed}---\n${service('c')}---\n${service('a')}`;
  await apply(last);
  const before = [...store.state.ofKind('Service')];
  await store.close();
  const again = await ObjectStore.open(dir, { log, clock: systemClock });
  t.teardown(() => again.close());
  t.deepEqual([...again.state.ofKind('Service')], before);
  t.deepEqual(
    before.map(({ metadata }) => metadata.name),
    ['b', 'c', 'a'],
  );
  t.is(again.state.fileHash('f'), last);
  t.deepEqual([...again.state.ofFile('f')].length, 4);
});

test('a transaction of many objects crosses to the thread in messages of bounded size', async (t) => {
  const dir = await folder(t);
  const count = 3 * MAX_MESSAGE_ROWS + 1;
  const { thread } = await StoreThread.open(dir);
  const rows = Array.from({ length: count }, (_, index) => ({
    key: `Pod/demo/${index}`,
    file: null,
    content: 'x'.repeat(6_000),
  }));
  // The number of messages sent when each row was made: no row is made before its message is due.
  const sent: number[] = [];
  function* making(): Iterable<(typeof rows)[number]> {
    for (const row of rows) {
      sent.push(thread.messages);
      yield row;
    }
  }
  await thread.write(making());
  t.deepEqual(
    [0, 1, 2, 3].map((messages) => sent.filter((count) => count === messages).length),
    [MAX_MESSAGE_ROWS + 1, MAX_MESSAGE_ROWS, MAX_MESSAGE_ROWS, 0],
  );
  t.is(thread.messages, 4);
  await thread.close();
  const again = await StoreThread.open(dir);
  const parts: number[] = [];
  for await (const part of again.thread.rows()) parts.push(part.length);
  t.deepEqual(parts, [MAX_MESSAGE_ROWS, MAX_MESSAGE_ROWS, MAX_MESSAGE_ROWS, 1]);
  await again.thread.close();
});

test('nothing of a transaction is kept when one of its rows cannot be made or written', async (t) => {
  const dir = await folder(t);
  const { thread } = await StoreThread.open(dir);
  t.teardown(() => thread.close());
  const row = (index: number, content: string | null = 'x'): never =>
    ({ key: `Pod/demo/${index}`, file: null, content }) as never;
  function* broken(last: () => never): Iterable<never> {
    for (let index = 0; index <= MAX_MESSAGE_ROWS; index += 1) yield row(index);
    yield last();
  }
  await t.throwsAsync(
    thread.write(
      broken(() => {
        throw new Error('cannot be made');
      }),
    ),
    { message: 'cannot be made' },
  );
  await t.throwsAsync(thread.write(broken(() => row(1, { not: 'text' } as never))), {
    code: 'STATE_UNAVAILABLE',
    message: /^cannot write .*store\.db: /,
  });
  await thread.write([row(7)]);
  const kept: string[] = [];
  for await (const part of thread.rows()) kept.push(...part.map(({ key }) => key));
  t.deepEqual(kept, ['Pod/demo/7']);
});

test('a file applied again costs a step for each of its objects, and touches none that stays as it is', (t) => {
  const context = admissionContext();
  const steps = (draft: Draft, text: string): number => {
    const change = applyFile(draft, { name: 'f', hash: text }, manifestsOf(text), context);
    let count = 0;
    while (change.next().done !== true) count += 1;
    return count;
  };
  const state = new CommittedState();
  const texts = Array.from({ length: 200 }, (_, index) => service(`s-${index}`));
  const first = new Draft(state);
  steps(first, [namespace('demo'), ...texts].join('---\n'));
  for (const change of first.changes) state.apply(change);
  // One is dropped, one is changed, 199 objects stay.
  const changed = service('s-1').replace('demo}', 'demo, labels: {new: "1"}}');
  const second = new Draft(state);
  const view = new Proxy(second, {
    get: (draft, name) => {
      if (name === 'get') reads += 1;
      const member: unknown = Reflect.get(draft, name, draft);
      return typeof member === 'function' ? member.bind(draft) : member;
    },
  });
  let reads = 0;
  const count = steps(view, [namespace('demo'), changed, ...texts.slice(2)].join('---\n'));
  // The keys of the 200, the 201 objects of the file, and the application of the 200.
  t.is(count, 200 + 201 + 200);
  t.deepEqual(
    second.changes.map((change) => (change.op === 'put' ? change.object.metadata.name : change.op)),
    ['delete', 's-1', 'file'],
  );
  // Each object needs two reads of its stored form and one of its namespace.
  t.true(reads <= 3 * 200, `${reads} reads`);
});

const ROW = { key: 'Pod/demo/a', file: null, content: 'x' };

/** Opens a store whose thread has ended because it was idle. */
async function resting(
  t: ExecutionContext,
): Promise<{ disk: DiskStore; dir: string; clock: FakeClock }> {
  const dir = await folder(t);
  const clock = new FakeClock();
  const { disk } = await DiskStore.open(dir, clock);
  t.teardown(() => disk.close());
  await disk.write([ROW]);
  await clock.advance(STORE_IDLE_MS - 1);
  t.true(disk.awake);
  await clock.advance(1);
  t.false(disk.awake);
  return { disk, dir, clock };
}

async function keysOf(store: DiskStore | StoreThread): Promise<string[]> {
  const keys: string[] = [];
  for await (const part of store.rows()) keys.push(...part.map(({ key }) => key));
  return keys;
}

test("an idle store's thread ends, and the next write has a thread again and is durable", async (t) => {
  const { disk, dir, clock } = await resting(t);
  await disk.write([{ ...ROW, key: 'Pod/demo/b' }]);
  t.true(disk.awake);
  // Another reader of the file sees only what was committed.
  const { thread } = await StoreThread.open(dir);
  t.deepEqual(await keysOf(thread), ['Pod/demo/a', 'Pod/demo/b']);
  await thread.close();
  await clock.advance(STORE_IDLE_MS);
  t.false(disk.awake);
  t.deepEqual(await keysOf(disk), ['Pod/demo/a', 'Pod/demo/b']);
});

test('a store without its thread still holds its directory, and frees it when it is closed', async (t) => {
  const { disk, dir, clock } = await resting(t);
  await t.throwsAsync(DiskStore.open(dir, clock), {
    code: 'STATE_UNAVAILABLE',
    message: new RegExp(`in use by process ${process.pid} on `),
  });
  await disk.close();
  await disk.done;
  const again = await DiskStore.open(dir, clock);
  t.deepEqual(await keysOf(again.disk), ['Pod/demo/a']);
  await again.disk.close();
});

test('a store whose file is damaged when its thread starts again fails for good', async (t) => {
  const { disk, dir } = await resting(t);
  const path = join(dir, 'store.db');
  await until(() => !existsSync(`${path}-wal`), { what: 'the closed file' });
  await writeFile(path, 'no database');
  const damaged = { code: 'STATE_INVALID', message: /store\.db is damaged: / } as const;
  await t.throwsAsync(disk.write([ROW]), damaged);
  await t.throwsAsync(disk.done, damaged);
  await t.throwsAsync(disk.write([ROW]), damaged);
  t.is(await readFile(path, 'utf8'), 'no database');
});

test('a plan that throws changes nothing, and those beside it go through', async (t) => {
  const { log } = keptLog('store');
  const store = await ObjectStore.open(await folder(t), { log, clock: systemClock });
  t.teardown(() => store.close());
  const context = admissionContext();
  const told: number[] = [];
  store.onCommit((changes) => told.push(changes.length));
  const results = await Promise.allSettled([
    store.transact((draft) =>
      finish(applyManifests(draft, manifestsOf(namespace('demo')), null, context)),
    ),
    store.transact((draft) => {
      draft.delete('Namespace//demo');
      throw new Error('no');
    }),
    store.transact((draft) =>
      finish(applyManifests(draft, manifestsOf(service('a')), null, context)),
    ),
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

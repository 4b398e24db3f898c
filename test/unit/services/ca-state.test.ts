/** Tests what the CA keeps: its root, which nobody may overwrite unseen, and the holders of certificates. */
import { mkdir, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { HolderFile } from '../../../services/ca/holder-file.ts';
import { Holders } from '../../../services/ca/holders.ts';
import type { Holder, HolderStore } from '../../../services/ca/holders.ts';
import { HOLDER_RETRY_MS, MAX_HOLDERS } from '../../../services/ca/limits.ts';
import { StateFolder } from '../../../services/ca/state-folder.ts';
import { newState } from '../../../services/ca/state.ts';
import { capturedLog } from '../../support/bus.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { until } from '../../support/until.ts';

const HOUR_MS = 3_600_000;

async function folder(t: ExecutionContext): Promise<string> {
  const dir = await makeScratch('ca-state');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return join(dir, 'state');
}

function stateFolder(dir: string): StateFolder {
  return new StateFolder(dir, { clock: new FakeClock(), log: capturedLog().log });
}

test('of two writers of one version one wins, and the other is told', async (t) => {
  const dir = await folder(t);
  const [one, two] = [stateFolder(dir), stateFolder(dir)];
  t.is(await one.read(), null);
  const state = await newState('cluster.local', Date.now());
  const outcomes = await Promise.allSettled([one.create(state), two.create(state)]);
  t.deepEqual(outcomes.map(({ status }) => status).sort(), ['fulfilled', 'rejected']);
  const other = await newState('cluster.local', Date.now());
  await one.replace(other, '1');
  await t.throwsAsync(() => two.replace(state, '1'), { message: /changed by another process/ });
  await t.throwsAsync(() => two.create(state), { message: /changed by another process/ });
  t.deepEqual(await two.read(), { state: other, version: '2' });
  t.deepEqual(await readdir(dir), ['authority-2.json'], 'no older key is left');
  t.is((await stat(join(dir, 'authority-2.json'))).mode & 0o777, 0o600);
});

test('a root in the file of earlier versions goes on, and the next change moves it', async (t) => {
  const dir = await folder(t);
  await mkdir(dir);
  const state = await newState('cluster.local', Date.now());
  const { certificatePem, keyPem } = state.signing;
  await writeFile(join(dir, 'root.pem'), certificatePem + keyPem);
  const store = stateFolder(dir);
  t.deepEqual(await store.read(), { state, version: '0' });
  await store.replace(state, '0');
  t.deepEqual(await readdir(dir), ['authority-1.json']);
  t.deepEqual(await store.read(), { state, version: '1' });
});

test('a damaged state names its file and is left as it is', async (t) => {
  const dir = await folder(t);
  await mkdir(dir);
  await writeFile(join(dir, 'authority-7.json'), '{"signing":{}}');
  const store = stateFolder(dir);
  await t.throwsAsync(() => store.read(), { message: /authority-7\.json cannot be used/ });
  t.is(await store.version(), '7');
});

/** A store that has kept holders before. */
function begunStore(parts: Pick<HolderStore, 'read' | 'merge'>): HolderStore {
  return { ...parts, begun: () => Promise.resolve(true), begin: () => Promise.resolve() };
}

test('holders are written together, only when they change, and forgotten at their end', async (t) => {
  const clock = new FakeClock();
  const file = new HolderFile(await folder(t));
  const writes: (readonly Holder[])[] = [];
  const store = begunStore({
    read: () => file.read(),
    merge(changed, nowMs) {
      writes.push(changed);
      return file.merge(changed, nowMs);
    },
  });
  const holders = new Holders({ clock, log: capturedLog().log, store });
  const end = clock.now() + 24 * HOUR_MS;
  await Promise.all([
    holders.note('node-1', ['b', 'a'], end),
    holders.note('node-2', null, end),
    ...Array.from({ length: 100 }, () => holders.note('node-1', ['a', 'b'], end)),
  ]);
  t.is(writes.length, 1);
  t.deepEqual(
    writes[0]?.map(({ name, roots }) => [name, roots]),
    [
      ['node-1', ['a', 'b']],
      ['node-2', null],
    ],
  );
  t.true(holders.live().every(({ untilMs }) => untilMs >= end));
  await clock.advance(HOUR_MS);
  await holders.note('node-1', ['a', 'b'], end + HOUR_MS);
  t.is(writes.length, 1, 'an end within the known one is no change');
  await holders.note('node-1', ['c'], end + HOUR_MS);
  t.is(writes.length, 2, 'another root is');
  await clock.advance(40 * HOUR_MS);
  t.deepEqual(holders.live(), []);
  await holders.note('node-3', null, clock.now() + HOUR_MS);
  t.deepEqual(
    (await store.read()).map(({ name }) => name),
    ['node-3'],
  );
  await holders.close();
});

test('a process with an old memory of a holder neither removes it nor shortens its time', async (t) => {
  const clock = new FakeClock();
  const store = new HolderFile(await folder(t));
  const open = (): Holders => new Holders({ clock, log: capturedLog().log, store });
  const [stale, other] = [open(), open()];
  await stale.note('node-1', ['old'], clock.now() + 24 * HOUR_MS);
  await stale.note('node-2', ['old'], clock.now() + 72 * HOUR_MS);
  await other.refresh();
  await clock.advance(20 * HOUR_MS);
  const end = clock.now() + 48 * HOUR_MS;
  await other.note('node-1', ['old'], end);
  // Within the end that the other has written, beyond the one that this process remembers.
  await stale.note('node-1', ['new'], clock.now() + 12 * HOUR_MS);
  const [row] = await store.read();
  t.true(row?.name === 'node-1' && row.untilMs >= end, 'the end is the later one');
  t.deepEqual(row?.roots, ['new'], 'the report is the newer one');
  await clock.advance(20 * HOUR_MS);
  await stale.note('node-3', null, clock.now() + 24 * HOUR_MS);
  await stale.refresh();
  t.deepEqual(
    stale
      .live()
      .map(({ name }) => name)
      .sort(),
    ['node-1', 'node-2', 'node-3'],
  );
  await Promise.all([stale.close(), other.close()]);
});

test('a holder whose time is over is a new one: it gets nothing while it cannot be written', async (t) => {
  const clock = new FakeClock();
  const file = new HolderFile(await folder(t));
  let failing = false;
  const store = begunStore({
    read: () => file.read(),
    merge: (changed, nowMs) =>
      failing ? Promise.reject(new Error('no space')) : file.merge(changed, nowMs),
  });
  const holders = new Holders({ clock, log: capturedLog().log, store });
  await holders.note('node-1', null, clock.now() + HOUR_MS);
  await clock.advance(24 * HOUR_MS);
  failing = true;
  await t.throwsAsync(() => holders.note('node-1', null, clock.now() + HOUR_MS), {
    code: 'IDENTITY_UNAVAILABLE',
  });
  await holders.close();
});

test('changes that come during a write are written with the next, before their certificates are handed out', async (t) => {
  const clock = new FakeClock();
  const writes: string[][] = [];
  const first = Promise.withResolvers<void>();
  const store = begunStore({
    read: () => Promise.resolve([]),
    async merge(changed) {
      writes.push(changed.map(({ name }) => name));
      if (writes.length === 1) await first.promise;
    },
  });
  const holders = new Holders({ clock, log: capturedLog().log, store });
  const end = clock.now() + HOUR_MS;
  const one = holders.note('node-1', null, end);
  await until(() => writes.length === 1, { what: 'the first write' });
  let isHandedOut = false;
  const later = ['node-2', 'node-3'].map((name) =>
    holders.note(name, null, end).then(() => (isHandedOut = true)),
  );
  t.deepEqual(writes, [['node-1']]);
  t.false(isHandedOut);
  first.resolve();
  await Promise.all([one, ...later]);
  t.deepEqual(writes, [['node-1'], ['node-2', 'node-3']]);
  await holders.close();
});

test('more holders than a rotation can follow are refused, not forgotten', async (t) => {
  const clock = new FakeClock();
  const store = new HolderFile(await folder(t));
  const holders = new Holders({ clock, log: capturedLog().log, store });
  await Promise.all(
    Array.from({ length: MAX_HOLDERS }, (_, node) =>
      holders.note(`node-${node}`, null, clock.now() + HOUR_MS),
    ),
  );
  await t.throwsAsync(() => holders.note('one-more', null, clock.now() + HOUR_MS), {
    message: /the most/,
  });
  await holders.close();
  const again = new Holders({ clock, log: capturedLog().log, store });
  await again.refresh();
  t.is(again.live().length, MAX_HOLDERS);
});

test('while holders cannot be written, known ones go on and new ones get nothing; all are written later', async (t) => {
  const clock = new FakeClock();
  const { log, lines } = capturedLog();
  const written: string[] = [];
  let failing = false;
  const store = begunStore({
    read: () => Promise.resolve([]),
    merge(changed) {
      if (failing) return Promise.reject(new Error('no space'));
      written.push(...changed.map(({ name }) => name));
      return Promise.resolve();
    },
  });
  const holders = new Holders({ clock, log, store });
  await holders.note('node-1', null, clock.now() + HOUR_MS);
  failing = true;
  await holders.note('node-1', ['a'], clock.now() + HOUR_MS);
  t.is(lines.at(-1)?.['message'], 'certificate-holders.write-failed');
  await t.throwsAsync(() => holders.note('node-2', null, clock.now() + HOUR_MS), {
    code: 'IDENTITY_UNAVAILABLE',
    message: /node-2 cannot be noted as a holder of certificates: no space/,
  });
  failing = false;
  await clock.advance(HOLDER_RETRY_MS);
  await until(() => written.length > 1, { what: 'the later write' });
  t.deepEqual(written, ['node-1', 'node-1', 'node-2']);
  await holders.close();
});

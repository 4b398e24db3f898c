import { mkdir, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { systemClock as clock } from '../../../lib/clock/clock.ts';
import { MAX_INLINE_BYTES, MAX_MESSAGE_ROWS } from '../../../services/control-plane/limits.ts';
import { ManifestReader } from '../../../services/control-plane/manifests/manifest-reader.ts';
import { ManifestDirectory } from '../../../services/control-plane/store/manifest-directory.ts';
import { ObjectStore } from '../../../services/control-plane/store/object-store.ts';
import { ensureNamespaces } from '../../../services/control-plane/store/transactions.ts';
import { keptLog } from '../../support/actor-context.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { admissionContext } from '../../support/mesh-objects.ts';

const COUNT = 2 * MAX_MESSAGE_ROWS + 1;
const account = (name: string): string =>
  `apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: ${name}, namespace: default}\n`;
const LARGE = Array.from({ length: COUNT }, (_, index) => account(`a-${index}`)).join('---\n');

/** Counts the turns of the event loop with a chain of immediates. */
function countTurns(): { turns: number; stop(): void } {
  let running = true;
  const count = { turns: 0, stop: () => (running = false) };
  const next = (): void => {
    count.turns += 1;
    if (running) setImmediate(next);
  };
  setImmediate(next);
  return count;
}

test('large manifests are read in a thread, and their objects come in messages of bounded size', async (t) => {
  const reader = new ManifestReader();
  t.teardown(() => reader.close());
  const small = Buffer.from(account('one'));
  t.is((await reader.file('small.yaml', small, null)).manifests.length, 1);
  t.is(reader.messages, 0, 'small ones are read at once');

  const large = Buffer.from(LARGE);
  t.true(large.length > MAX_INLINE_BYTES);
  const loop = countTurns();
  const read = await reader.file('large.yaml', large, null);
  loop.stop();
  t.is(read.refusal, null);
  t.deepEqual(
    read.manifests.map(({ object }) => object.metadata.name),
    Array.from({ length: COUNT }, (_, index) => `a-${index}`),
  );
  t.is(reader.messages, 3);
  t.true(loop.turns > reader.messages, `${loop.turns} turns`);

  const again = await reader.file('large.yaml', large, read.hash);
  t.like(again, { hash: read.hash, refusal: null });
  t.is(reader.messages, 3, 'a content that is known is not sent again');

  const broken = await reader.file('large.yaml', Buffer.from(`${LARGE}---\nkind: Secret\n`), null);
  t.regex(broken.refusal?.message ?? '', /large\.yaml, document 1001, kind: unknown kind "Secret"/);
  t.is(broken.manifests.length, 0);
});

test('large requests are read in the thread too, and refused as small ones are', async (t) => {
  const reader = new ManifestReader();
  t.teardown(() => reader.close());
  const body = (documents: readonly unknown[]): Buffer =>
    Buffer.from(JSON.stringify({ documents }));
  const documents = Array.from({ length: COUNT }, (_, index) => ({
    source: 'test',
    index,
    object: { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: `a-${index}` } },
  }));
  t.is((await reader.toApply(body(documents))).length, COUNT);
  t.is((await reader.toDelete(body(documents))).length, COUNT);
  t.is(reader.messages, 6);
  const padding = ' '.repeat(MAX_INLINE_BYTES);
  for (const pad of ['', padding]) {
    await t.throwsAsync(reader.toApply(Buffer.from(`{${pad}`)), {
      code: 'MANIFEST_INVALID',
      message: /^the body is not JSON: /,
    });
    await t.throwsAsync(reader.toDelete(Buffer.from(`{"document":[]${pad}}`)), {
      code: 'MANIFEST_INVALID',
      message: /^body: /,
    });
    const unknown = { source: 'test', index: 7, object: { kind: 'Secret', pad } };
    await t.throwsAsync(reader.toApply(body([unknown])), { message: /test, document 7, kind: / });
  }
});

test('a file that was not written to since is not read again; one that was is', async (t) => {
  const dir = await makeScratch('manifests');
  const files = join(dir, 'files');
  await mkdir(files);
  const path = join(files, 'a.yaml');
  await writeFile(path, account('one'));
  const { log } = keptLog('manifests');
  const store = await ObjectStore.open(join(dir, 'state'), { log, clock });
  t.teardown(() => store.close());
  const read: string[] = [];
  const reader = new ManifestReader();
  const file = reader.file.bind(reader);
  reader.file = (name, bytes, known) => {
    read.push(name);
    return file(name, bytes, known);
  };
  const context = admissionContext({ fixedNamespaces: ['default'] });
  await store.transact((draft) => ensureNamespaces(draft, context));
  // Only the test's own clock moves: a slow machine must not make the file old.
  const { ctimeMs } = await stat(path);
  let aheadMs = 0;
  const directory = new ManifestDirectory(files, {
    store,
    reader,
    clock: { ...clock, now: () => ctimeMs + aheadMs },
    log,
    context: () => context,
    brokenFiles: () => undefined,
    refused: () => undefined,
  });
  t.teardown(() => directory.close());
  const accounts = (): string[] =>
    [...store.state.ofKind('ServiceAccount')].map(({ metadata }) => metadata.name);
  await directory.look();
  t.deepEqual(accounts(), ['one']);
  t.is(read.length, 1);
  await directory.look();
  t.is(read.length, 2, 'written to just now: perhaps it was again, in the same tick');
  aheadMs = 10_000;
  await directory.look();
  t.is(read.length, 3);
  await directory.look();
  await directory.look();
  t.is(read.length, 3, 'by now every write would show');
  const { atime, mtime } = await stat(path);
  await writeFile(path, account('two'));
  await utimes(path, atime, mtime);
  await directory.look();
  t.is(read.length, 4, 'also when it has the size and the time of before');
  t.deepEqual(accounts(), ['two']);
});

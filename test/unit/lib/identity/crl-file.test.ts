import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { CrlFile } from '../../../../lib/identity/crl-file.ts';
import { MAX_CRL_BYTES } from '../../../../lib/identity/crl.ts';
import type { RevocationLists } from '../../../../lib/identity/crl.ts';
import { issueCrl } from '../../../support/crl-kit.ts';
import { makeScratch } from '../../../support/leftovers.ts';
import { createTunnelPki } from '../../../support/tunnel-pki.ts';
import { until } from '../../../support/until.ts';

async function fixture(t: ExecutionContext, folder = '') {
  const dir = await makeScratch('crl');
  t.teardown(() => rm(dir, { recursive: true }));
  const path = join(dir, folder, 'lists.pem');
  const lines: string[] = [];
  const changes: RevocationLists[] = [];
  const note = (level: string) => (fields: unknown, event: string) =>
    void lines.push(`${level} ${event} ${JSON.stringify(fields)}`);
  const log = { debug: () => {}, info: note('info'), warn: note('warn'), error: note('error') };
  const file = new CrlFile(path, {
    clock: systemClock,
    log: log as unknown as ConstructorParameters<typeof CrlFile>[1]['log'],
    onChange: (lists) => changes.push(lists),
  });
  t.teardown(() => file.close());
  const pki = await createTunnelPki();
  const put = async (content: Buffer | string): Promise<void> => {
    await writeFile(`${path}.new`, content);
    await rename(`${path}.new`, path);
  };
  return { dir, path, file, lines, changes, pki, put };
}

// spec: hbone.md §4
test('a file that is missing at the start is told once and taken when it appears', async (t) => {
  const { file, lines, changes, pki, put, path } = await fixture(t, 'later');
  await file.start();
  t.is(file.current, null);
  t.regex(file.problem ?? '', /ENOENT/);
  await file.reload();
  t.is(lines.filter((line) => line.includes('crl.unusable')).length, 1);
  await mkdir(join(path, '..'));
  await put(await issueCrl(pki.root, { revoked: [Buffer.of(1)] }));
  await file.reload();
  t.is(changes.length, 1);
  t.is(file.problem, null);
  t.deepEqual(file.stats, { lists: 1, entries: 1, overdue: 0, refused: 1 });
});

// spec: hbone.md §4
test('an unusable file at the start disables the lists with a message, and a repaired one enables them', async (t) => {
  const { file, lines, changes, pki, put } = await fixture(t);
  await put('nonsense');
  await file.start();
  t.is(file.current, null);
  t.true(lines.some((line) => line.startsWith('error crl.unusable')));
  await put(await issueCrl(pki.root, { revoked: [] }));
  await file.reload();
  t.is(changes.length, 1);
});

// spec: hbone.md §4
test('an update that cannot be used keeps the lists before it, and so does a file that goes away', async (t) => {
  const { file, lines, changes, pki, put, path } = await fixture(t);
  await put(await issueCrl(pki.root, { revoked: [Buffer.of(1)] }));
  await file.start();
  for (const spoil of [
    () => put('nonsense'),
    () => put(Buffer.alloc(MAX_CRL_BYTES + 1, 0x30)),
    () => rm(path),
  ]) {
    await spoil();
    await file.reload();
    t.is(file.current, changes[0] ?? null);
    t.is(file.stats.entries, 1);
  }
  t.is(file.stats.refused, 3);
  t.true(lines.some((line) => line.includes('"keepsLastGood":true')));
  await put('');
  await file.reload();
  t.is(changes.length, 2);
  t.is(file.stats.lists, 0);
});

// spec: hbone.md §4
test('a replaced file is read by itself, and an overdue list is told and used', async (t) => {
  const { file, lines, changes, pki, put } = await fixture(t);
  await put('');
  await file.start();
  const nextUpdateMs = Date.now() - 1_000;
  await put(await issueCrl(pki.root, { revoked: [Buffer.of(1)], nextUpdateMs }));
  await until(() => changes.length === 2, { timeoutMs: 20_000, what: 'the new lists' });
  t.deepEqual(file.stats, { lists: 1, entries: 1, overdue: 1, refused: 0 });
  t.true(lines.some((line) => line.startsWith('warn crl.overdue')));
});

test('the same content again changes nothing', async (t) => {
  const { file, changes, pki, put } = await fixture(t);
  const der = await issueCrl(pki.root, { revoked: [] });
  await put(der);
  await file.start();
  await put(der);
  await file.reload();
  t.is(changes.length, 1);
});

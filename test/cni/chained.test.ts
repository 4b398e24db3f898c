/** The plugin's entry in the primary's own file: files of others are kept, and a removal gives them back. */
import { lstat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { until } from '../support/until.ts';
import { ENTRY, installSite } from './support/installer.ts';

const SINGLE = '{"cniVersion":"1.0.0","name":"net","type":"bridge"}';
const LIST =
  '{"cniVersion":"1.0.0","name":"newer","plugins":[{"type":"calico"},{"type":"portmap"}]}';
const CHAINED = { ownList: null } as const;

/** The list that stands for {@link SINGLE}. */
const CONVERTED = `${JSON.stringify(
  { cniVersion: '1.0.0', name: 'net', plugins: [{ name: 'net', type: 'bridge' }, ENTRY] },
  null,
  2,
)}\n`;

test('a .conf that the primary writes again with the same text is moved away again', async (t) => {
  const site = await installSite(t, CHAINED);
  await site.put('10-x.conf', SINGLE);
  const installer = await site.start();
  await site.put('10-x.conf', SINGLE);
  installer.check();
  await until(async () => !('10-x.conf' in (await site.files())), { what: 'it is moved away' });
  t.deepEqual(await site.files(), { '10-x.conflist': CONVERTED, '10-x.conf.weft-saved': SINGLE });
  t.true(installer.ready);
});

test('a .conf that a killed agent has not moved away is moved away', async (t) => {
  const site = await installSite(t, CHAINED);
  await site.put('10-x.conf', SINGLE);
  await site.put('10-x.conflist', CONVERTED);
  t.true((await site.start()).ready);
  t.deepEqual(await site.files(), { '10-x.conflist': CONVERTED, '10-x.conf.weft-saved': SINGLE });
});

for (const [what, text] of [
  ['a list', LIST],
  ['a list with comments', `/* mine */ ${LIST}`],
] as const) {
  test(`${what} of others with the name of the chained one is kept, and both files are named`, async (t) => {
    const site = await installSite(t, CHAINED);
    const before = { '10-x.conf': SINGLE, '10-x.conflist': text };
    for (const [file, content] of Object.entries(before)) await site.put(file, content);
    const installer = await site.start();
    t.false(installer.ready);
    t.regex(installer.failed?.problem ?? '', /10-x\.conflist .* 10-x\.conf\b/);
    t.deepEqual(await site.files(), before);
    await installer.close();
    await installer.remove();
    t.deepEqual(await site.files(), before);
  });
}

test('a link to a list of others with that name is kept too', async (t) => {
  const site = await installSite(t, CHAINED);
  await site.put('10-x.conf', SINGLE);
  const link = join(site.options.netDir, '10-x.conflist');
  await symlink('/nowhere/x.conflist', link);
  const installer = await site.start();
  t.false(installer.ready);
  t.true((await lstat(link)).isSymbolicLink());
});

test("a removal keeps the primary's newer list and drops the obsolete .conf", async (t) => {
  const site = await installSite(t, CHAINED);
  await site.put('10-x.conf', SINGLE);
  const installer = await site.start();
  await site.put('10-x.conflist', LIST);
  installer.check();
  await site.fileWhen('10-x.conflist', (text) => /calico[^]*weft-cni/.test(text));
  await installer.close();
  await installer.remove();
  const { '10-x.conflist': list = '', ...rest } = await site.files();
  t.deepEqual(JSON.parse(list), JSON.parse(LIST));
  t.deepEqual(rest, {});
});

test('a removal keeps a .conf that came back since, and drops the list and the saved file', async (t) => {
  const site = await installSite(t, CHAINED);
  await site.put('10-x.conf', SINGLE);
  const installer = await site.start();
  await installer.close();
  const newer = SINGLE.replace('bridge', 'ptp');
  await site.put('10-x.conf', newer);
  await installer.remove();
  t.deepEqual(await site.files(), { '10-x.conf': newer });
});

test('a link to a list stays a link: it is refused', async (t) => {
  const site = await installSite(t, CHAINED);
  await site.put('real', LIST);
  const link = join(site.options.netDir, '10-x.conflist');
  await symlink('real', link);
  const installer = await site.start();
  t.regex(installer.failed?.problem ?? '', /10-x\.conflist is a symbolic link/);
  await installer.close();
  await installer.remove();
  t.true((await lstat(link)).isSymbolicLink());
  t.deepEqual(await site.files(), { '10-x.conflist': LIST, real: LIST });
});

test('a link to a single plugin is moved away, and comes back as a link', async (t) => {
  const site = await installSite(t, CHAINED);
  await site.put('real', SINGLE);
  const link = join(site.options.netDir, '10-x.conf');
  await symlink('real', link);
  const installer = await site.start();
  t.true(installer.ready, installer.failed?.problem ?? '');
  await installer.close();
  await installer.remove();
  t.true((await lstat(link)).isSymbolicLink());
  t.deepEqual(await site.files(), { '10-x.conf': SINGLE, real: SINGLE });
});

test('a removal writes through a second name of the list, which stays a link', async (t) => {
  const site = await installSite(t, CHAINED);
  await site.put('10-x.conflist', LIST);
  const link = join(site.options.netDir, '20-x.conflist');
  await symlink('10-x.conflist', link);
  const installer = await site.start();
  t.true(installer.ready, installer.failed?.problem ?? '');
  await installer.close();
  await installer.remove();
  t.true((await lstat(link)).isSymbolicLink());
  t.notRegex(Object.values(await site.files()).join(), /weft-cni/);
});

/** The installation on a host's folders: what is written, watched, repaired and removed. */
import { execFile } from 'node:child_process';
import { readFile, readdir, realpath, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { readKubeconfig } from '../../lib/kubernetes/connection.ts';
import { until } from '../support/until.ts';
import { ENTRY, installSite } from './support/installer.ts';

const run = promisify(execFile);
const OWN = '02-weft-cni.conflist';

interface List {
  readonly name: string;
  readonly plugins: readonly { readonly type: string }[];
}

const types = (text: string | undefined): string[] =>
  (JSON.parse(text ?? '') as List).plugins.map(({ type }) => type);
const mode = async (path: string): Promise<number> => (await stat(path)).mode & 0o777;

for (const fixture of [
  '10-bridge.conf',
  '10-calico.conflist',
  '05-cilium.conflist',
  '10-flannel.conflist',
  '10-aws.conflist',
]) {
  test(`${fixture}: an own list sorts first, and a removal leaves no trace`, async (t) => {
    const site = await installSite(t);
    const text = await site.putFixture(fixture);
    const installer = await site.start();
    t.true(installer.ready, installer.problem ?? '');
    const files = await site.files();
    t.deepEqual(Object.keys(files), [OWN, fixture]);
    t.is(files[fixture], text);
    const before = types(fixture.endsWith('.conf') ? `{"plugins":[${text}]}` : text);
    t.deepEqual(types(files[OWN]), [...before, 'weft-cni']);
    t.is(await mode(join(site.options.netDir, OWN)), 0o600);
    await installer.close();
    await installer.remove();
    t.deepEqual(await site.files(), { [fixture]: text });
    t.deepEqual(await readdir(site.options.binDir), []);
  });

  test(`${fixture}: a chained entry, and a removal that gives the same configuration back`, async (t) => {
    const site = await installSite(t, { ownList: null });
    const text = await site.putFixture(fixture);
    const installer = await site.start();
    t.true(installer.ready, installer.problem ?? '');
    const list = fixture.replace(/\.conf$/, '.conflist');
    const files = await site.files();
    t.is(types(files[list]).at(-1), 'weft-cni');
    // A runtime must find no single plugin before the list.
    t.is(Object.keys(files).filter((name) => /\.conf(list)?$/.test(name)).length, 1);
    await installer.close();
    await installer.remove();
    const after = await site.files();
    t.deepEqual(Object.keys(after), [fixture]);
    t.deepEqual(JSON.parse(after[fixture] ?? ''), JSON.parse(text));
  });
}

test('the program and the helper are in place before the list, and run', async (t) => {
  const site = await installSite(t);
  await site.putFixture('10-calico.conflist');
  const installer = await site.start();
  const { binDir } = site.options;
  t.is(await mode(join(binDir, 'weft-cni')), 0o755);
  const folder = await realpath(join(binDir, 'weft-cni.d'));
  const helper = run(
    join(folder, 'ld.so'),
    [
      '--library-path',
      join(folder, 'lib'),
      join(folder, 'node'),
      join(folder, 'services/node-agent/cni/helper.ts'),
    ],
    { env: {} },
  );
  helper.child.stdin?.end('no question');
  const { stdout } = await helper;
  t.regex(stdout, /^unknown /, 'a question that is none');
  // Later rounds copy nothing.
  const before = await stat(join(folder, 'node'));
  await writeFile(join(binDir, 'weft-cni'), 'broken');
  await until(async () => (await stat(join(binDir, 'weft-cni'))).size > 100, {
    what: 'the program is repaired',
  });
  t.is((await stat(join(folder, 'node'))).ino, before.ino);
  await installer.close();
});

test('the own list follows the primary, and comes back when somebody removes or changes it', async (t) => {
  const site = await installSite(t);
  await site.putFixture('10-flannel.conflist');
  await site.start();
  await site.put('10-flannel.conflist', '{"name":"cbr0","plugins":[{"type":"flannel"}]}');
  await site.fileWhen(OWN, (text) => types(text).join() === 'flannel,weft-cni');
  await rm(join(site.options.netDir, OWN));
  await site.fileWhen(OWN, (text) => types(text).join() === 'flannel,weft-cni');
  await site.put(OWN, '{"name":"cbr0","plugins":[{"type":"flannel"}]}');
  await site.fileWhen(OWN, (text) => types(text).includes('weft-cni'));
  t.true(site.states.at(-1));
  t.false(site.results.includes('CREATE_CNI_CONFIG_FAILURE'));
});

test('a chained entry comes back when the primary plugin rewrites its file', async (t) => {
  const site = await installSite(t, { ownList: null });
  const text = await site.putFixture('10-calico.conflist');
  await site.start();
  await site.put('10-calico.conflist', text);
  await site.fileWhen('10-calico.conflist', (now) => types(now).at(-1) === 'weft-cni');
  t.pass();
});

test('it waits for a primary plugin', async (t) => {
  const site = await installSite(t);
  const installer = await site.start();
  t.false(installer.ready);
  t.regex(installer.problem ?? '', /no configuration of a primary CNI plugin yet/);
  await site.putFixture('10-aws.conflist');
  await until(() => installer.ready, { what: 'the installation is complete' });
  t.deepEqual(site.states, [true]);
  t.is(site.results[0], 'CREATE_CNI_CONFIG_FAILURE');
});

test('a file with comments or trailing commas is left as it is, and named', async (t) => {
  const site = await installSite(t);
  const texts = {
    'commented.conflist': await site.putFixture('commented.conflist'),
    'trailing-comma.conflist': await site.putFixture('trailing-comma.conflist'),
  };
  const installer = await site.start();
  t.false(installer.ready);
  await site.putFixture('10-flannel.conflist');
  await until(() => installer.ready, { what: 'the installation is complete' });
  await installer.close();
  await installer.remove();
  const { '10-flannel.conflist': _flannel, ...rest } = await site.files();
  t.deepEqual(rest, texts);
  const refused = site.lines.filter(({ message }) => message === 'cni.file-refused');
  t.deepEqual(
    refused.map(({ file }) => file),
    Object.keys(texts),
  );
});

test('what cannot be read does not count as absent', async (t) => {
  const site = await installSite(t);
  await site.putFixture('10-calico.conflist');
  const loop = join(site.options.netDir, '01-loop.conflist');
  await symlink('01-loop.conflist', loop);
  const installer = await site.start();
  t.false(installer.ready);
  t.regex(installer.problem ?? '', /ELOOP.*01-loop\.conflist/);
  await rm(loop);
  await until(() => installer.ready, { what: 'the installation is complete' });
});

test('a primary that sorts before the own list is refused, for no runtime would read the list', async (t) => {
  const site = await installSite(t);
  await site.put('00-multus.conf', '{"type":"multus","name":"multus"}');
  const installer = await site.start();
  t.false(installer.ready);
  t.regex(installer.problem ?? '', /00-multus\.conf sorts before 02-weft-cni\.conflist/);
  t.is(installer.conflict, installer.problem);
  t.deepEqual(Object.keys(await site.files()), ['00-multus.conf']);
});

test('a fight over the list is told', async (t) => {
  const site = await installSite(t);
  await site.putFixture('05-cilium.conflist');
  await site.start();
  await until(
    async () => {
      await rm(join(site.options.netDir, OWN), { force: true });
      await site.fileWhen(OWN, (text) => text !== '');
      return site.lines.some(({ message }) => message === 'cni.contested');
    },
    { what: 'the fight is told' },
  );
  t.pass();
});

test('the kubeconfig is of its owner only, and follows the token', async (t) => {
  const site = await installSite(t);
  const tokenFile = join(site.options.runDir, 'token');
  await writeFile(tokenFile, 'first\n');
  const connected = await installSite(t, {
    connection: {
      server: new URL('https://[fd00::1]:443'),
      serverName: 'kubernetes.default',
      ca: { kind: 'text', text: 'PEM' },
      token: { kind: 'file', path: tokenFile },
      client: null,
      namespace: 'weft-system',
    },
  });
  await connected.putFixture('10-calico.conflist');
  const installer = await connected.start();
  const path = join(connected.options.runDir, 'weft-cni-kubeconfig');
  t.is(await mode(path), 0o600);
  const { token, server, serverName, ca } = await readKubeconfig(path);
  t.deepEqual(token, { kind: 'text', text: 'first' });
  t.is(server.href, 'https://[fd00::1]/');
  t.is(serverName, 'kubernetes.default');
  t.deepEqual(ca, { kind: 'text', text: 'PEM' });
  await writeFile(tokenFile, 'second\n');
  await until(async () => (await readFile(path, 'utf8')).includes('"second"'), {
    what: 'the new token is there',
  });
  await installer.close();
  await installer.remove();
  t.deepEqual(await readdir(connected.options.runDir), []);
});

test('a list that the group may read has that mode, and settings come into the entry', async (t) => {
  const site = await installSite(t, { listMode: 0o640 });
  await site.putFixture('10-calico.conflist');
  await site.start();
  t.is(await mode(join(site.options.netDir, OWN)), 0o640);
  const { plugins } = JSON.parse((await site.files())[OWN] ?? '') as List;
  t.deepEqual(plugins.at(-1), ENTRY);
});

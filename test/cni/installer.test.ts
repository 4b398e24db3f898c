/** The installation on a host's folders: what is written, watched, repaired and removed. */
import { execFile } from 'node:child_process';
import {
  mkdir,
  readFile,
  readdir,
  realpath,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { readKubeconfig } from '../../lib/kubernetes/connection.ts';
import { until } from '../support/until.ts';
import { kubeconfigText } from '../../services/node-agent/cni/kubeconfig.ts';
import { ENTRY, installSite } from './support/installer.ts';
import { runPlugin } from './support/plugin.ts';

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
    t.true(installer.ready, installer.failed?.problem ?? '');
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
    t.true(installer.ready, installer.failed?.problem ?? '');
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
  await site.put(
    '10-flannel.conflist',
    '{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel"}]}',
  );
  await site.fileWhen(OWN, (text) => types(text).join() === 'flannel,weft-cni');
  await rm(join(site.options.netDir, OWN));
  await site.fileWhen(OWN, (text) => types(text).join() === 'flannel,weft-cni');
  await site.put(OWN, '{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel"}]}');
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
  t.regex(installer.failed?.problem ?? '', /no configuration of a primary CNI plugin yet/);
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

/** Files that a runtime may read and this process cannot, by how each is made. */
const UNREADABLE: Readonly<
  Record<string, readonly [make: (path: string) => Promise<unknown>, problem: RegExp]>
> = {
  'a link to itself': [(path) => symlink(basename(path), path), /ELOOP/],
  'a link to a file that only the host has': [
    (path) => symlink('/nowhere/multus.conflist', path),
    /no regular file, and no link to one/,
  ],
  'a pipe': [(path) => run('mkfifo', [path]), /no regular file/],
  'a device': [(path) => symlink('/dev/zero', path), /no regular file/],
  'a huge file': [
    (path) => writeFile(path, `{"name":"n","plugins":[{"type":"x"}]${' '.repeat(1_048_576)}}`),
    /larger than 1048576 bytes/,
  ],
};
for (const [what, [make, problem]] of Object.entries(UNREADABLE)) {
  test(`${what} does not count as absent where the runtime would take it first`, async (t) => {
    const site = await installSite(t);
    await site.putFixture('10-calico.conflist');
    const first = join(site.options.netDir, '01-first.conflist');
    await make(first);
    const installer = await site.start();
    t.false(installer.ready);
    t.regex(installer.failed?.problem ?? '', problem);
    t.regex(installer.failed?.problem ?? '', /01-first\.conflist cannot be read/);
    await rename(first, join(site.options.netDir, '99-last.conflist'));
    await until(() => installer.ready, { what: 'the installation is complete' });
    await installer.close();
    await installer.remove();
    t.deepEqual(await readdir(site.options.netDir), ['10-calico.conflist', '99-last.conflist']);
  });
}

test('a folder under the name of a list is none, as for a runtime', async (t) => {
  const site = await installSite(t);
  await mkdir(join(site.options.netDir, '00-folder.conflist'));
  await site.putFixture('10-calico.conflist');
  t.true((await site.start()).ready);
});

test('a link to a list is a list', async (t) => {
  const site = await installSite(t);
  const target = join(site.options.runDir, 'flannel');
  await writeFile(target, '{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel"}]}');
  await symlink(target, join(site.options.netDir, '10-flannel.conflist'));
  const installer = await site.start();
  t.deepEqual(types(await site.fileWhen(OWN, Boolean)), ['flannel', 'weft-cni']);
  await writeFile(
    target,
    '{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel"},{"type":"portmap"}]}',
  );
  installer.check();
  await site.fileWhen(OWN, (text) => types(text).join() === 'flannel,portmap,weft-cni');
});

test('of two primaries the first by name counts, whichever came first', async (t) => {
  const site = await installSite(t);
  await site.putFixture('10-flannel.conflist');
  await site.start();
  const first = types(await site.fileWhen(OWN, Boolean));
  await site.putFixture('05-cilium.conflist');
  await site.fileWhen(OWN, (text) => types(text).join() === 'cilium-cni,weft-cni');
  await rm(join(site.options.netDir, '05-cilium.conflist'));
  await site.fileWhen(OWN, (text) => types(text).join() === first.join());
  t.true(first.includes('flannel'));
});

test('a list with a byte order mark is refused, as runtimes do', async (t) => {
  const site = await installSite(t);
  await site.put('05-mark.conflist', '\uFEFF{"name":"n","plugins":[{"type":"x"}]}');
  await site.putFixture('10-flannel.conflist');
  await site.start();
  t.true(types(await site.fileWhen(OWN, Boolean)).includes('flannel'));
  const refused = site.lines.find(({ message }) => message === 'cni.file-refused');
  t.is(refused?.['file'], '05-mark.conflist');
});

test('a primary that is replaced again and again never leaves a list of halves', async (t) => {
  const site = await installSite(t);
  const list = (count: number): string =>
    JSON.stringify({
      cniVersion: '1.0.0',
      name: 'n',
      plugins: Array.from({ length: count }, (_, index) => ({ type: `p${index}` })),
    });
  await site.put('10-primary.conflist', list(1));
  const installer = await site.start();
  const path = join(site.options.netDir, '10-primary.conflist');
  for (let round = 0; round < 200; round += 1) {
    // As careful primaries do, and as the others do.
    if (round % 2 === 0) {
      await writeFile(`${path}.new`, list(1 + (round % 50)));
      await rename(`${path}.new`, path);
    } else {
      await writeFile(path, list(1 + (round % 50)));
    }
    installer.check();
    const own = types(await site.fileWhen(OWN, Boolean));
    t.is(own.at(-1), 'weft-cni');
    t.is(own.at(-2), `p${own.length - 2}`);
  }
  await site.put('10-primary.conflist', list(3));
  await site.fileWhen(OWN, (text) => types(text).join() === 'p0,p1,p2,weft-cni');
  t.true(installer.ready);
});

test('a single plugin of a .json file counts as for containerd and CRI-O', async (t) => {
  const site = await installSite(t);
  const plugin = '{"cniVersion":"1.0.0","name":"net","type":"bridge"}';
  await site.put('10-bridge.json', plugin);
  const installer = await site.start();
  t.deepEqual(types(await site.fileWhen(OWN, Boolean)), ['bridge', 'weft-cni']);
  await site.put('00-first.json', plugin);
  installer.check();
  await until(() => !installer.ready, { what: 'the file that runtimes take first is seen' });
  t.regex(installer.failed?.problem ?? '', /00-first\.json sorts before 02-weft-cni\.conflist/);
});

test('a chained entry takes the place of a .json file, and a removal brings that back', async (t) => {
  const site = await installSite(t, { ownList: null });
  const plugin = '{"cniVersion":"1.0.0","name":"net","type":"bridge"}';
  await site.put('10-bridge.json', plugin);
  const installer = await site.start();
  const files = await site.files();
  t.deepEqual(Object.keys(files), ['10-bridge.conflist', '10-bridge.json.weft-saved']);
  t.deepEqual(types(files['10-bridge.conflist']), ['bridge', 'weft-cni']);
  await installer.close();
  await installer.remove();
  t.deepEqual(await site.files(), { '10-bridge.json': plugin });
});

test('it installs behind a list exactly when the plugin speaks its version', async (t) => {
  const { answer } = await runPlugin({ CNI_COMMAND: 'VERSION' }, '');
  const spoken = answer?.['supportedVersions'] as readonly string[];
  const plugins = [{ type: 'bridge' }];
  const lists: readonly (readonly [Record<string, unknown>, RegExp | null])[] = [
    ...spoken.map((cniVersion) => [{ cniVersion }, null] as const),
    [{ cniVersion: '0.2.0', cniVersions: ['0.4.0'] }, null],
    [{ cniVersions: ['1.1.0', '1.0.0'] }, null],
    [{}, /10-primary\.conflist has no cniVersion/],
    [{ cniVersion: '' }, /has no cniVersion/],
    [{ cniVersion: '0.2.0' }, /is of 0\.2\.0: weft-cni speaks 0\.3\.0, /],
    [{ cniVersion: '1.0.0', cniVersions: ['1.10.0', '1.9.0'] }, /is of 1\.10\.0/],
  ];
  const site = await installSite(t);
  await site.put('10-primary.conflist', '');
  const installer = await site.start();
  for (const [versions, problem] of lists) {
    await site.put('10-primary.conflist', JSON.stringify({ ...versions, name: 'n', plugins }));
    installer.check();
    if (problem === null) {
      const named = JSON.stringify(versions).slice(1, -1);
      await site.fileWhen(OWN, (text) => JSON.stringify(JSON.parse(text)).startsWith(`{${named},`));
      await until(() => installer.ready, { what: named });
    } else {
      await until(() => problem.test(installer.failed?.problem ?? ''), { what: String(problem) });
      t.false(installer.ready);
    }
  }
});

for (const ownList of [null, '00-weft-cni.conflist', '05-weft-cni.conflist']) {
  test(`an own list of before goes when the list becomes ${ownList ?? 'the primary one'}`, async (t) => {
    const site = await installSite(t);
    const text = await site.putFixture('10-flannel.conflist');
    await (await site.start()).close();
    const installer = await site.start({ ownList });
    t.true(installer.ready, installer.failed?.problem ?? '');
    const file = ownList ?? '10-flannel.conflist';
    const names = new Set(['10-flannel.conflist', file]);
    t.deepEqual(Object.keys(await site.files()), [...names].toSorted());
    // The new list still follows the primary.
    await site.put('10-flannel.conflist', text.replace('"portmap"', '"tuning"'));
    await site.fileWhen(file, (now) => types(now).join() === 'flannel,tuning,weft-cni');
    await installer.close();
    await installer.remove();
    t.deepEqual(Object.keys(await site.files()), ['10-flannel.conflist']);
  });
}

test('what killed agents left half copied is removed, and nothing of others', async (t) => {
  const site = await installSite(t);
  const { netDir, binDir, runDir } = site.options;
  await mkdir(binDir);
  const half = '0123456789ab';
  const left = [
    join(binDir, `weft-cni.${half}`),
    join(binDir, `.weft-cni.d-0123456789abcdef.${half}`, 'node'),
    join(binDir, `.weft-cni.d-0123456789abcdef`, 'node'),
    join(netDir, `${OWN}.${half}`),
  ];
  const foreign = [
    join(binDir, 'weft-cni.old'),
    join(binDir, `bridge.${half}`),
    join(netDir, `10-calico.conflist.${half}`),
    join(runDir, 'other'),
  ];
  for (const path of [...left, ...foreign]) {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, '');
  }
  await site.putFixture('10-calico.conflist');
  const installer = await site.start();
  t.true(installer.ready, installer.failed?.problem ?? '');
  for (const path of left) await t.throwsAsync(stat(path), { code: 'ENOENT' });
  for (const path of foreign) t.true((await stat(path)).isFile());
  await installer.close();
  await installer.remove();
  t.deepEqual((await readdir(binDir)).toSorted(), [`bridge.${half}`, 'weft-cni.old']);
});

test('a primary that sorts before the own list is refused, for no runtime would read the list', async (t) => {
  const site = await installSite(t);
  await site.put('00-multus.conf', '{"type":"multus","name":"multus"}');
  const installer = await site.start();
  t.false(installer.ready);
  t.regex(installer.failed?.problem ?? '', /00-multus\.conf sorts before 02-weft-cni\.conflist/);
  t.is(installer.conflict, installer.failed?.problem ?? '');
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

test('the kubeconfig is of its owner only, and follows its token and the roots', async (t) => {
  let token = 'first';
  const ca = join((await installSite(t)).options.runDir, 'ca.crt');
  await writeFile(ca, 'PEM\n');
  const connection = {
    server: new URL('https://[fd00::1]:443'),
    serverName: 'kubernetes.default',
    ca: { kind: 'file', path: ca },
  } as const;
  const site = await installSite(t, { kubeconfig: () => kubeconfigText(connection, token) });
  await site.putFixture('10-calico.conflist');
  const installer = await site.start();
  const path = join(site.options.runDir, 'weft-cni-kubeconfig');
  t.is(await mode(path), 0o600);
  const read = await readKubeconfig(path);
  t.deepEqual(read.token, { kind: 'text', text: 'first' });
  t.is(read.server.href, 'https://[fd00::1]/');
  t.is(read.serverName, 'kubernetes.default');
  t.deepEqual(read.ca, { kind: 'text', text: 'PEM' });
  token = 'second';
  installer.check();
  await until(async () => (await readFile(path, 'utf8')).includes('"second"'), {
    what: 'the new token is there',
  });
  await writeFile(ca, 'PEM of today\n');
  installer.check();
  await until(
    async () => {
      const now = await readKubeconfig(path);
      return now.ca?.kind === 'text' && now.ca.text === 'PEM of today';
    },
    { what: 'the new roots are there' },
  );
  await installer.close();
  await installer.remove();
  t.deepEqual(await readdir(site.options.runDir), []);
});

test('the kubeconfig follows its token where there is no primary, and the list is what is told', async (t) => {
  let token: string | null = 'first';
  const site = await installSite(t, {
    kubeconfig: () =>
      token === null ? Promise.reject(new Error('no token')) : Promise.resolve(token),
  });
  const installer = await site.start();
  const path = join(site.options.runDir, 'weft-cni-kubeconfig');
  t.is(await readFile(path, 'utf8'), 'first');
  token = 'second';
  installer.check();
  await until(async () => (await readFile(path, 'utf8')) === 'second', { what: 'the second' });
  token = null;
  const rounds = site.results.length;
  installer.check();
  await until(() => site.results.length >= rounds + 2, { what: 'rounds without a token' });
  t.is(installer.failed?.result, 'CREATE_CNI_CONFIG_FAILURE');
  t.is(site.lines.filter(({ message }) => message === 'cni.not-installed').length, 1);
});

test('without a token the plugin is installed all the same, and the former kubeconfig stays', async (t) => {
  const site = await installSite(t, { kubeconfig: () => Promise.reject(new Error('no token')) });
  const path = join(site.options.runDir, 'weft-cni-kubeconfig');
  await writeFile(path, 'former');
  await site.putFixture('10-calico.conflist');
  const installer = await site.start();
  t.false(installer.ready);
  t.deepEqual(installer.failed, { result: 'CREATE_KUBECONFIG_FAILURE', problem: 'no token' });
  t.is(types((await site.files())[OWN]).at(-1), 'weft-cni');
  t.is(await readFile(path, 'utf8'), 'former');
});

test('a list that the group may read has that mode, and settings come into the entry', async (t) => {
  const site = await installSite(t, { listMode: 0o640 });
  await site.putFixture('10-calico.conflist');
  await site.start();
  t.is(await mode(join(site.options.netDir, OWN)), 0o640);
  const { plugins } = JSON.parse((await site.files())[OWN] ?? '') as List;
  t.deepEqual(plugins.at(-1), { ...ENTRY, own_list: true });
});

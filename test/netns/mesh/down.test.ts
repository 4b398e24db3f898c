import { readFile, readdir } from 'node:fs/promises';
import test from 'ava';
import { TestMesh } from '../../support/mesh.ts';
import { netnsUnavailable } from '../../support/netns-kit.ts';
import { until } from '../../support/until.ts';

const unavailable = netnsUnavailable();
if (unavailable !== null)
  process.stderr.write(`\nSKIPPED, NOT RUN: a file of mesh tests: ${unavailable}\n`);
const meshTest = unavailable === null ? test.serial : test.serial.skip;

/** What a mesh could leave on the machine. */
async function traces(name: string): Promise<string[]> {
  const list = async (folder: string): Promise<string[]> => {
    const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    return names.filter((entry) => entry.includes(name)).map((entry) => `${folder}/${entry}`);
  };
  const processes: string[] = [];
  for (const pid of (await readdir('/proc')).filter((entry) => /^\d+$/.test(entry))) {
    if (Number(pid) === process.pid) continue;
    const [command, environment] = await Promise.all(
      ['cmdline', 'environ'].map((file) =>
        readFile(`/proc/${pid}/${file}`, 'utf8').catch(() => ''),
      ),
    );
    if (`${command}${environment}`.includes(name))
      processes.push(`${pid} ${command?.replaceAll('\0', ' ')}`);
  }
  return [
    ...(await list('/run')),
    ...(await list('/run/netns')),
    ...(await list('/tmp')),
    ...processes,
  ];
}

/** The host's own links, which a mesh must not touch. */
async function links(mesh: TestMesh): Promise<string> {
  return (await mesh.start('ip', ['-o', 'link']).exit).stdout.replaceAll(/^\d+: /gm, '');
}

/** The host's own rules, which a mesh must not touch. */
async function rules(mesh: TestMesh): Promise<string> {
  return (await mesh.start('iptables-save', ['-t', 'nat']).exit).stdout.replaceAll(/^#.*$/gm, '');
}

meshTest(
  'weft down leaves no namespace, process, socket or file, and may be repeated',
  async (t) => {
    t.timeout(180_000);
    const mesh = await TestMesh.up();
    const host = [await links(mesh), await rules(mesh)];
    t.true((await traces(mesh.name)).length > 0);
    await mesh.down();
    t.deepEqual(await traces(mesh.name), []);
    t.deepEqual([await links(mesh), await rules(mesh)], host);
    await mesh.down();
  },
);

meshTest('a start after a crash cleans up what the first left', async (t) => {
  t.timeout(240_000);
  const mesh = await TestMesh.up();
  const supervisor = await mesh.json<{ supervisor?: { pid: number } }>('status');
  const pid = supervisor.supervisor?.pid;
  t.truthy(pid, 'status names the supervisor');
  process.kill(Number(pid), 'SIGKILL');
  await until(async () => (await mesh.weft('status')).code !== 0, {
    what: 'the supervisor to be gone',
  });
  const again = await mesh.weft('up', '--detach', '--wait');
  t.is(again.code, 0, again.stderr);
  t.is((await mesh.curl('demo/client', 'http://api/')).code, 0);
  await mesh.down();
  t.deepEqual(await traces(mesh.name), []);
});

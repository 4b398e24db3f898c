import { readFile, readdir } from 'node:fs/promises';
import { TestMesh } from '../../support/mesh.ts';
import { netnsTest as test } from '../../support/netns-test.ts';
import { until } from '../../support/until.ts';

const WEFT = new URL('../../../services/cli/weft', import.meta.url).pathname;
/** A mesh that takes longer to come up is broken, even on a busy machine. */
const WAIT = ['--detach', '--wait', '--timeout', '240s'] as const;
/** The byte that a terminal sends for Ctrl-C. */
const CONTROL_C = '\u0003';
const ENTER_ALTERNATE_SCREEN = '\u001B[?1049h';
const LEAVE_ALTERNATE_SCREEN = '\u001B[?1049l';

/** Lists everything that a mesh could leave on the machine. */
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
  const kernel = await Promise.all(
    ['/proc/net/unix', '/proc/self/mountinfo'].map((file) => readFile(file, 'utf8')),
  );
  return [
    ...(await list('/run')),
    ...(await list('/run/netns')),
    ...(await list('/tmp')),
    ...(await list('/dev/shm')),
    ...processes,
    ...kernel.flatMap((table) => table.split('\n').filter((line) => line.includes(name))),
  ];
}

/** Lists the host's own links, which a mesh must not change. */
async function links(mesh: TestMesh): Promise<string> {
  return (await mesh.start('ip', ['-o', 'link']).exit).stdout.replaceAll(/^\d+: /gm, '');
}

/** Lists the host's own rules, which a mesh must not change. */
async function rules(mesh: TestMesh): Promise<string> {
  return (await mesh.start('iptables-save', ['-t', 'nat']).exit).stdout.replaceAll(/^#.*$/gm, '');
}

test('a mesh with many pods whose supervisor was killed is cleaned up by the next start, and goes without a trace', async (t) => {
  t.timeout(290_000);
  const mesh = new TestMesh();
  const host = [await links(mesh), await rules(mesh)];
  const started = performance.now();
  const up = await mesh.weft('up', ...WAIT, '--pods', '20');
  t.is(up.code, 0, up.stderr);
  t.log(`up with 20 more pods a node after ${Math.round(performance.now() - started)} ms`);
  const pods = await mesh.pods();
  t.is(pods.filter((pod) => pod.namespace === 'load' && pod.enrolled).length, 40);
  const { supervisor } = await mesh.status();
  process.kill(supervisor.pid, 'SIGKILL');
  await until(async () => (await mesh.weft('status')).code === 1, {
    what: 'the supervisor to be gone',
  });

  const again = await mesh.weft('up', ...WAIT);
  t.is(again.code, 0, again.stderr);
  t.regex(again.stderr, /removed what a crashed mesh left: \d+ namespaces, \d+ processes/);
  t.is((await mesh.curl('demo/client', 'http://api/')).code, 0);
  t.is((await mesh.pods()).length, pods.length - 40);
  t.true((await traces(mesh.name)).length > 0);
  await mesh.down();
  t.deepEqual(await traces(mesh.name), []);
  t.deepEqual([await links(mesh), await rules(mesh)], host);
  await mesh.down();
});

test('Ctrl-C in the view takes everything down', async (t) => {
  t.timeout(280_000);
  const mesh = new TestMesh();
  t.teardown(() => mesh.down());
  const session = mesh.start('script', [
    '-qefc',
    `stty rows 50 cols 160; exec ${WEFT} up`,
    '/dev/null',
  ]);
  const shown = (text: string): Promise<unknown> =>
    until(() => session.output().includes(text), {
      what: `${text} on the screen`,
      timeoutMs: 60_000,
    });
  await shown(ENTER_ALTERNATE_SCREEN);
  await shown('ns/demo/sa/client');
  await shown('Ctrl-C takes the mesh down');
  t.true(session.output().includes('actors started'), 'progress was told before');
  session.stdin.write(CONTROL_C);
  const { code, stdout } = await session.exit;
  t.is(code, 0, stdout.slice(-2_000));
  t.true(stdout.lastIndexOf(LEAVE_ALTERNATE_SCREEN) > stdout.lastIndexOf(ENTER_ALTERNATE_SCREEN));
  t.notRegex(stdout, /\n\s+at /);
  t.deepEqual(await traces(mesh.name), []);
});

test('without root, up says what is missing and what still works', async (t) => {
  const mesh = new TestMesh();
  const nobody = ['--reuid=65534', '--regid=65534', '--clear-groups'];
  const { code, stdout, stderr } = await mesh.start('setpriv', [...nobody, WEFT, 'up']).exit;
  t.is(code, 1, stderr);
  t.regex(stderr, /missing: root/);
  t.regex(stderr, /What works without: npm test .* weft run/);
  t.notRegex(`${stdout}${stderr}`, /\n\s+at |node:internal/);
  t.deepEqual(await traces(mesh.name), []);
});

test('a role left to somebody else works when it is started by hand with what weft env prints', async (t) => {
  t.timeout(280_000);
  const mesh = await TestMesh.up({ arguments: ['--external', 'node-2/node-proxy'], wait: false });
  t.teardown(() => mesh.down());
  t.is((await mesh.actors()).find((actor) => actor.state === 'external')?.node, 'node-2');
  const served = async (node: string): Promise<readonly boolean[]> =>
    (await mesh.pods())
      .filter((pod) => pod.node === node && pod.namespace !== 'plain')
      .map(({ enrolled }) => enrolled);
  await until(async () => (await served('node-1')).includes(true), {
    what: 'a pod of the other node to be enrolled',
  });
  await until(async () => (await served('node-2')).length > 0, { what: 'pods on this node' });
  t.false((await served('node-2')).includes(true));
  const script = `
    eval "$("$0" env node-2/node-proxy)" || exit 9
    unset WEFT_MESH
    exec nsenter --net=${mesh.netns('node-2')} "$0" run node-proxy`;
  const proxy = mesh.start('bash', ['-c', script, WEFT]);
  await until(
    async () =>
      !(await served('node-1')).includes(false) && !(await served('node-2')).includes(false),
    { what: 'every pod to be enrolled', timeoutMs: 60_000 },
  );
  const api = await until(() => mesh.pod('demo', 'api-1'), { what: 'the pod api-1' });
  await until(
    async () => {
      await mesh.curl('demo/client', `http://${api.ip}:8080/`);
      return (await mesh.stat('node-2', 'weft_hbone_handshakes_total', { result: 'accepted' })) > 0;
    },
    { what: 'a connection over HBONE to the proxy started by hand', timeoutMs: 30_000 },
  );
  proxy.kill('SIGTERM');
  const { code, stderr } = await proxy.exit;
  t.is(code, 0, stderr);
});

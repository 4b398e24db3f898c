import { readdir, readFile } from 'node:fs/promises';
import { test } from './mesh.ts';
import type { TestMesh } from '../../../support/mesh.ts';
import { until } from '../../../support/until.ts';

/** A pod whose command leaves its process group and has a unique name. */
const pod = (name: string, mark: string, hostNetwork: boolean): string => `
apiVersion: v1
kind: Pod
metadata: { name: ${name}, namespace: plain }
spec:
  nodeName: node-1
  hostNetwork: ${hostNetwork}
  containers:
    - name: main
      command: [sh, -c, 'setsid sh -c "trap : TERM; while :; do sleep 1000; done" ${mark} & wait']
`;

const NAMES = `
apiVersion: v1
kind: Service
metadata: { name: pods, namespace: demo }
spec: { clusterIP: None, selector: { app: api }, ports: [{ port: 80 }] }
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: wild, namespace: demo }
spec:
  hosts: ['*.wild.example']
  addresses: [240.9.9.9]
  ports: [{ number: 80, name: http, protocol: HTTP }]
  resolution: NONE
`;

/** Finds the pids of the processes whose command line ends with the mark. */
async function marked(mark: string): Promise<string[]> {
  const found: string[] = [];
  for (const pid of (await readdir('/proc')).filter((entry) => /^\d+$/.test(entry))) {
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    if (command.endsWith(`\0${mark}\0`)) found.push(pid);
  }
  return found;
}

async function leaves(mesh: TestMesh, name: string, hostNetwork: boolean): Promise<string[]> {
  const mark = `${mesh.name}-${name}`;
  const manifest = pod(name, mark, hostNetwork);
  await mesh.apply(manifest);
  await until(async () => (await marked(mark)).length === 1, { what: 'its process to run' });
  await mesh.delete(manifest);
  await until(async () => !(await mesh.pods()).some((line) => line.name === name), {
    what: 'the pod to be gone',
    timeoutMs: 30_000,
  });
  return marked(mark);
}

test('a process that left its command goes with the pod', async (t, mesh) => {
  t.deepEqual(await leaves(mesh, 'stray', false), []);
});

test('a process that left its command goes with a pod in the network of its node, and nothing else does', async (t, mesh) => {
  const before = await mesh.actors();
  t.deepEqual(await leaves(mesh, 'hoststray', true), []);
  t.deepEqual(
    (await mesh.actors()).map(({ pid }) => pid),
    before.map(({ pid }) => pid),
  );
});

test('a command in a pod asks its proxy for names: services, headless ones, wildcards; others fail at once', async (t, mesh) => {
  await mesh.apply(NAMES);
  const ask = async (words: string): Promise<string[]> => {
    const { stdout } = await mesh.weft(
      'exec',
      'demo/client',
      '--',
      'dig',
      '+short',
      '+search',
      ...words.split(' '),
    );
    return stdout.split('\n').filter((line) => /^[0-9a-f.:]+$/.test(line));
  };
  for (const name of ['api', 'api.demo', 'api.demo.svc.cluster.local']) {
    t.regex((await ask(`${name} A`)).join(), /^10\.96\.\d+\.\d+$/, name);
  }
  t.regex((await ask('+tcp api AAAA')).join(), /^fd00:96::/);
  await until(async () => (await ask('pods A')).length > 1, {
    what: 'the endpoints of the headless service',
  });
  t.deepEqual(await ask('any.wild.example A'), ['240.9.9.9']);
  const page = await mesh.weft('exec', 'demo/client', '--', 'getent', 'ahosts', 'any.wild.example');
  t.regex(page.stdout, /240\.9\.9\.9/);
  t.deepEqual(await ask('www.example.com A'), []);
  await mesh.delete(NAMES);
});

test('the command line reads the mesh as the tests do', async (t, mesh) => {
  t.deepEqual(await mesh.json('get', 'pods'), await mesh.pods());
  t.deepEqual(await mesh.json('get', 'certificates'), await mesh.certificates());
  const pids = (lines: readonly { pid: number | null }[]) => lines.map(({ pid }) => pid);
  const status = await mesh.json<Awaited<ReturnType<typeof mesh.status>>>('status');
  t.deepEqual(pids(status.actors), pids(await mesh.actors()));
  t.is((await mesh.weft('get', 'connections', '-o', 'json')).code, 0);
});

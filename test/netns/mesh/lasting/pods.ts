import { stat } from 'node:fs/promises';
import type { PodLine } from '../../../../services/cli/get/pods.ts';
import type { TestMesh } from '../../../support/mesh.ts';
import { Talk } from '../../../support/talk.ts';
import { until } from '../../../support/until.ts';
import { test } from './mesh.ts';

const pod = (name: string, extra = ''): string => `
apiVersion: v1
kind: Pod
metadata:
  name: ${name}
  namespace: demo
  labels: { app: ${name}${extra} }
spec:
  nodeName: node-2
  serviceAccountName: api
  containers: [{ name: main, image: local }]
`;
const isAbsent = (error: NodeJS.ErrnoException): boolean => error.code === 'ENOENT';
/** Removes times and packet counts from the output of `iptables-save`. */
const withoutCounters = (saved: string): string => saved.replaceAll(/^#.*$|\[\d+:\d+\]/gm, '');

/** True when a connection to the pod is open and carried over HBONE. */
async function overHbone(mesh: TestMesh, ip: string): Promise<boolean> {
  return (await mesh.connections()).some(
    (line) =>
      line.direction === 'inbound' &&
      line.protocol === 'HBONE' &&
      line.destination === `${ip}:8080`,
  );
}

const namespace = (mode: string): string => `
apiVersion: v1
kind: Namespace
metadata: { name: plain, labels: { istio.io/dataplane-mode: ${mode} } }
`;

async function enrolled(mesh: TestMesh, namespace: string, name: string): Promise<PodLine> {
  return until(
    async () => {
      const lines = await mesh.pods();
      const line = lines.find((one) => one.namespace === namespace && one.name === name);
      return line?.enrolled === true ? line : null;
    },
    { what: `${namespace}/${name} to be enrolled`, timeoutMs: 30_000 },
  );
}

async function gone(mesh: TestMesh, name: string): Promise<void> {
  await until(async () => !(await mesh.pods()).some((line) => line.name === name), {
    what: `${name} to be gone`,
    timeoutMs: 30_000,
  });
}

async function answers(mesh: TestMesh, ip: string, name: string): Promise<void> {
  const url = `http://${ip}:8080/`;
  await until(async () => (await mesh.curl('demo/client', url)).stdout.includes(`"${name}"`), {
    what: `${name} to answer`,
    timeoutMs: 30_000,
  });
}

/** Runs a command inside a pod's network namespace and returns its output. */
async function inside(mesh: TestMesh, netns: string, ...command: string[]): Promise<string> {
  const outcome = await mesh.inNetns(netns, ...command).exit;
  if (outcome.code !== 0) throw new Error(`${command.join(' ')}: ${outcome.stderr}`);
  return outcome.stdout;
}

test('a pod that is added is enrolled and reachable, and gone when it is removed', async (t, mesh) => {
  t.is((await mesh.apply(pod('extra'))).code, 0);
  const added = await enrolled(mesh, 'demo', 'extra');
  await answers(mesh, added.ip, 'extra');
  t.is((await mesh.delete(pod('extra'))).code, 0);
  await gone(mesh, 'extra');
  await until(() => stat(mesh.netns('demo-extra')).then(() => false, isAbsent), {
    what: 'its namespace to be gone',
  });
});

test('a pod re-created under the same name is served in its new namespace', async (t, mesh) => {
  const before = await mesh.pod('demo', 'api-2');
  t.is((await mesh.delete(pod('api-2'))).code, 0);
  await gone(mesh, 'api-2');
  t.is((await mesh.apply(pod('api-2'))).code, 0);
  const after = await enrolled(mesh, 'demo', 'api-2');
  t.not(after.ip, before.ip);
  await answers(mesh, after.ip, 'api-2');
});

test('a running pod is enrolled and un-enrolled by its namespace label, and none of its connections breaks', async (t, mesh) => {
  const outsider = await mesh.pod('plain', 'outsider');
  const api = await mesh.pod('demo', 'api-1');
  t.false(outsider.enrolled);
  const plain = [
    await Talk.open(mesh, 'demo-client', outsider.ip, 'outsider'),
    await Talk.open(mesh, 'node-1', outsider.ip, 'outsider'),
    await Talk.open(mesh, 'plain-outsider', api.ip, 'api-1'),
  ];
  const allHear = async (talks: readonly Talk[], when: string): Promise<void> => {
    for (const talk of talks) await talk.hears(when);
  };

  t.is((await mesh.apply(namespace('ambient'))).code, 0);
  await enrolled(mesh, 'plain', 'outsider');
  await allHear(plain, 'after enrolment');
  const carried = await until(
    async () => {
      const talk = await Talk.open(mesh, 'demo-client', outsider.ip, 'outsider');
      if (await overHbone(mesh, outsider.ip)) return talk;
      await talk.close();
      return null;
    },
    { what: 'a connection to be carried over HBONE', timeoutMs: 30_000 },
  );

  t.is((await mesh.apply(namespace('none'))).code, 0);
  await until(async () => !(await mesh.pod('plain', 'outsider')).enrolled, {
    what: 'un-enrolment',
    timeoutMs: 30_000,
  });
  await allHear([...plain, carried], 'after un-enrolment');
  t.true(await overHbone(mesh, outsider.ip), 'still the same connection');
  await answers(mesh, outsider.ip, 'outsider');
  await allHear([...plain, carried], 'at the end');
  await Promise.all([...plain, carried].map((talk) => talk.close()));
  await until(async () => !(await overHbone(mesh, outsider.ip)), {
    what: 'the connection to have ended',
  });
  await until(
    async () => !/15001|15006|15008/.test(await inside(mesh, 'plain-outsider', 'iptables-save')),
    { what: 'the rules to be gone' },
  );
  await until(
    async () => !/:1500[168]\b/.test(await inside(mesh, 'plain-outsider', 'ss', '-ltnH')),
    { what: 'the listeners to be gone' },
  );
});

test('rules that somebody removed from a pod are found, put back and counted', async (t, mesh) => {
  const kind = { kind: 'rules' };
  const count = (): Promise<number> =>
    mesh.metric('node-agent', 'node-1', 'nodeagent_drift_repaired_total', kind);
  const before = await count();
  const saved = await inside(mesh, 'demo-web-2', 'iptables-save', '-t', 'nat');
  await inside(mesh, 'demo-web-2', 'iptables', '-w', '-t', 'nat', '-F');
  // The loss is found within 10 s on an idle machine, by a check every 3 s.
  await until(
    async () =>
      withoutCounters(await inside(mesh, 'demo-web-2', 'iptables-save', '-t', 'nat')) ===
      withoutCounters(saved),
    { what: 'the rules to be as before', timeoutMs: 20_000 },
  );
  await until(async () => (await count()) > before, { what: 'the repair to be counted' });
  t.is((await mesh.curl('demo/web-2', 'http://api/')).code, 0);
});

test('listeners that somebody killed in a pod are found, opened again and counted', async (t, mesh) => {
  const kind = { kind: 'listeners' };
  const count = (): Promise<number> =>
    mesh.metric('node-agent', 'node-1', 'nodeagent_drift_repaired_total', kind);
  const before = await count();
  await inside(mesh, 'demo-web-2', 'ss', '-K', 'state', 'listening', 'sport', '=', ':15008');
  await until(async () => (await count()) > before, {
    what: 'the loss to be noticed',
    timeoutMs: 20_000,
  });
  await until(async () => /:15008\b/.test(await inside(mesh, 'demo-web-2', 'ss', '-ltnH')), {
    what: 'the pod to listen again',
    timeoutMs: 20_000,
  });
  await answers(mesh, (await mesh.pod('demo', 'web-2')).ip, 'web-2');
  t.pass();
});

test('pods that name no node are spread over the nodes and answer', async (t, mesh) => {
  const names = ['free-1', 'free-2', 'free-3', 'free-4'];
  const manifest = names.map((name) => pod(name).replace('  nodeName: node-2\n', '')).join('---\n');
  t.is((await mesh.apply(manifest)).code, 0);
  const free = await Promise.all(names.map((name) => enrolled(mesh, 'demo', name)));
  t.is(new Set(free.map(({ node }) => node)).size, 2, JSON.stringify(free));
  await Promise.all(free.map(({ ip, name }) => answers(mesh, ip, name)));
  // The manifest still names no node, and the binding stays.
  const again = await mesh.apply(manifest);
  t.is(again.code, 0, again.stderr);
  t.is((await mesh.delete(manifest)).code, 0);
  for (const name of names) await gone(mesh, name);
});

test('a hundred pods on a node are enrolled and reachable', async (t, mesh) => {
  const names = Array.from({ length: 100 }, (_, index) => `many-${index}`);
  const manifest = names.map((name) => pod(name)).join('---\n');
  t.is((await mesh.apply(manifest)).code, 0);
  const started = performance.now();
  const many = await until(
    async () => {
      const lines = (await mesh.pods()).filter(
        (line) => line.name.startsWith('many-') && line.enrolled,
      );
      return lines.length === names.length ? lines : null;
    },
    { what: 'a hundred pods to be enrolled', timeoutMs: 120_000 },
  );
  t.log(`enrolled after ${Math.round(performance.now() - started)} ms`);
  t.is(new Set(many.map((line) => line.ip)).size, names.length);
  await Promise.all(
    many.filter((_, index) => index % 33 === 0).map((line) => answers(mesh, line.ip, line.name)),
  );
  t.is((await mesh.delete(manifest)).code, 0);
  await until(async () => !(await mesh.pods()).some((line) => line.name.startsWith('many-')), {
    what: 'them to be gone',
    timeoutMs: 60_000,
  });
});

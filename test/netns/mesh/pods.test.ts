import { meshSuite } from '../../support/mesh-suite.ts';
import { until } from '../../support/until.ts';

const test = meshSuite();

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
const namespace = (mode: string): string => `
apiVersion: v1
kind: Namespace
metadata: { name: plain, labels: { istio.io/dataplane-mode: ${mode} } }
`;

test('a pod that is added is enrolled and reachable, and gone when it is removed', async (t, mesh) => {
  t.is((await mesh.apply(pod('extra'))).code, 0);
  const added = await until(
    async () => {
      const line = await mesh.pod('demo', 'extra');
      return line.enrolled ? line : null;
    },
    { what: 'the pod to be enrolled', timeoutMs: 30_000 },
  );
  await until(
    async () =>
      (await mesh.curl('demo/client', `http://${added.ip}:8080/`)).stdout.includes('extra'),
    { what: 'the pod to answer' },
  );
  t.is((await mesh.delete(pod('extra'))).code, 0);
  await until(async () => !(await mesh.pods()).some((line) => line.name === 'extra'), {
    what: 'the pod to be gone',
    timeoutMs: 30_000,
  });
  t.not((await mesh.start('nsenter', [`--net=${added.netns}`, 'true']).exit).code, 0);
});

test('a pod re-created under the same name is served in its new namespace', async (t, mesh) => {
  const before = await mesh.pod('demo', 'api-2');
  t.is((await mesh.delete(pod('api-2'))).code, 0);
  await until(async () => !(await mesh.pods()).some((line) => line.name === 'api-2'), {
    what: 'the pod to be gone',
    timeoutMs: 30_000,
  });
  t.is((await mesh.apply(pod('api-2'))).code, 0);
  const after = await until(
    async () => {
      const line = (await mesh.pods()).find((candidate) => candidate.name === 'api-2');
      return line?.enrolled === true ? line : null;
    },
    { what: 'the new pod to be enrolled', timeoutMs: 30_000 },
  );
  t.is(after.serviceAccount, before.serviceAccount);
  await until(
    async () =>
      (await mesh.curl('demo/client', `http://${after.ip}:8080/`)).stdout.includes('api-2'),
    { what: 'the new pod to answer' },
  );
});

test('a running pod is enrolled and un-enrolled by its namespace label, and serves all the time', async (t, mesh) => {
  const outsider = await mesh.pod('plain', 'outsider');
  t.false(outsider.enrolled);
  const reach = async (): Promise<boolean> =>
    (await mesh.curl('demo/client', `http://${outsider.ip}:8080/`)).stdout.includes('outsider');
  t.true(await reach());
  t.is((await mesh.apply(namespace('ambient'))).code, 0);
  await until(async () => (await mesh.pod('plain', 'outsider')).enrolled, {
    what: 'enrolment',
    timeoutMs: 30_000,
  });
  await until(
    async () =>
      (await reach()) &&
      (await mesh.log('node-proxy', 'node-2')).some(
        (line) =>
          line['direction'] === 'inbound' && line['dst.hbone_addr'] === `${outsider.ip}:8080`,
      ),
    { what: 'traffic to use HBONE', timeoutMs: 30_000 },
  );
  t.is((await mesh.apply(namespace('none'))).code, 0);
  await until(async () => !(await mesh.pod('plain', 'outsider')).enrolled, {
    what: 'un-enrolment',
    timeoutMs: 30_000,
  });
  await until(reach, { what: 'the pod to answer outside the mesh', timeoutMs: 30_000 });
  const rules = await mesh.start('nsenter', [
    `--net=${outsider.netns.startsWith('/') ? outsider.netns : `/run/netns/${outsider.netns}`}`,
    'iptables-save',
  ]).exit;
  t.false(rules.stdout.includes('15001'), rules.stdout);
});

test('rules that somebody removed from a pod are found and put back', async (t, mesh) => {
  const web = await mesh.pod('demo', 'web-2');
  const path = web.netns.startsWith('/') ? web.netns : `/run/netns/${web.netns}`;
  t.is(
    (await mesh.start('nsenter', [`--net=${path}`, 'iptables', '-w', '-t', 'nat', '-F']).exit).code,
    0,
  );
  await until(
    async () =>
      (await mesh.start('nsenter', [`--net=${path}`, 'iptables-save']).exit).stdout.includes(
        '15001',
      ),
    { what: 'the rules to be repaired', timeoutMs: 15_000 },
  );
  t.is((await mesh.curl('demo/web-2', 'http://api/')).code, 0);
});

test('a hundred pods on a node are enrolled and reachable', async (t, mesh) => {
  const names = Array.from({ length: 100 }, (_, index) => `many-${index}`);
  const manifest = names.map((name) => pod(name)).join('---\n');
  t.is((await mesh.apply(manifest)).code, 0);
  const many = await until(
    async () => {
      const lines = (await mesh.pods()).filter(
        (line) => line.name.startsWith('many-') && line.enrolled,
      );
      return lines.length === names.length ? lines : null;
    },
    { what: 'a hundred pods to be enrolled', timeoutMs: 120_000 },
  );
  for (const line of [many[0], many[50], many[99]]) {
    await until(
      async () =>
        (await mesh.curl('demo/client', `http://${line?.ip}:8080/`)).stdout.includes(
          String(line?.name),
        ),
      { what: `${line?.name} to answer`, timeoutMs: 30_000 },
    );
  }
  t.is((await mesh.delete(manifest)).code, 0);
  await until(async () => !(await mesh.pods()).some((line) => line.name.startsWith('many-')), {
    what: 'them to be gone',
    timeoutMs: 60_000,
  });
});

/** The `weft` command against a real API server, as a user calls it. */
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { parseAllDocuments } from 'yaml';
import { present } from '../../lib/errors/assert.ts';
import type { CheckLine } from '../../services/cli/check/line.ts';
import { makeScratch } from '../support/leftovers.ts';
import { runWeft } from '../support/run-weft.ts';
import type { WeftEnd } from '../support/run-weft.ts';
import type { Cluster, TestObject } from './support/cluster.ts';
import { kubernetesSuite } from './support/suite.ts';

const MANIFESTS = new URL('../../infra/kubernetes/weft.yaml', import.meta.url);

interface Checked {
  readonly code: number | null;
  readonly lines: readonly CheckLine[];
  readonly stderr: string;
}

/** Runs the command under a token. */
async function weft(
  t: ExecutionContext,
  cluster: Cluster,
  token: string,
  ...words: readonly string[]
): Promise<WeftEnd> {
  const folder = await makeScratch('cli');
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, 'kubeconfig');
  const data = Buffer.from(cluster.server.caPem).toString('base64');
  const server = { server: cluster.server.url, 'certificate-authority-data': data };
  // The token comes from a program, as in clouds, and the parts from two files.
  const exec = {
    apiVersion: 'client.authentication.k8s.io/v1',
    command: process.execPath,
    args: ['-e', 'console.log(JSON.stringify({ status: { token: process.env.GIVEN } }))'],
    env: [{ name: 'GIVEN', value: token }],
  };
  await writeFile(
    file,
    JSON.stringify({
      'current-context': 'elsewhere',
      contexts: [{ name: 'here', context: { cluster: 'one', user: 'me' } }],
      users: [{ name: 'me', user: { exec } }],
    }),
  );
  await writeFile(`${file}.more`, JSON.stringify({ clusters: [{ name: 'one', cluster: server }] }));
  return runWeft(['--context', 'here', ...words], { KUBECONFIG: `${file}:${file}.more` });
}

/** Runs `weft check`. */
async function check(
  t: ExecutionContext,
  cluster: Cluster,
  token: string,
  ...words: readonly string[]
): Promise<Checked> {
  const { code, stdout, stderr } = await weft(t, cluster, token, 'check', '-o', 'json', ...words);
  return { code, stderr, lines: stdout === '' ? [] : (JSON.parse(stdout) as CheckLine[]) };
}

/** The only line that says this. */
function lineOf({ lines, stderr }: Checked, says: RegExp): CheckLine {
  const found = lines.filter((line) => says.test(line.says));
  return present(found[0], `a line about ${says.source} in ${JSON.stringify(lines)} ${stderr}`);
}

async function workload(name: string, namespace: string): Promise<TestObject> {
  const objects = parseAllDocuments(await readFile(MANIFESTS, 'utf8')).map(
    (document) => document.toJS() as TestObject | null,
  );
  const found = objects.find((one) => one?.kind === 'DaemonSet' && one.metadata.name === name);
  const object = present(found ?? undefined, name);
  return { ...object, metadata: { ...object.metadata, namespace } };
}

const deployment = (
  namespace: string,
  name: string,
  labels: Readonly<Record<string, string>>,
  env: Readonly<Record<string, string>>,
): TestObject => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name, namespace },
  spec: {
    selector: { matchLabels: labels },
    template: {
      metadata: { labels },
      spec: {
        containers: [
          {
            name,
            image: 'none',
            env: Object.entries(env).map(([key, value]) => ({ name: key, value })),
          },
        ],
      },
    },
  },
});

await kubernetesSuite('cli', (test) => {
  test('a command names the right that a user lacks, and a cluster without a mesh', async (t, cluster) => {
    const namespace = await cluster.namespace('cli');
    const words = ['-n', namespace, 'status'];
    const empty = await weft(t, cluster, cluster.server.adminToken, ...words);
    t.is(empty.code, 1);
    t.regex(empty.stderr, new RegExp(`^weft: no pod of Weft is in namespace ${namespace}; `));
    const token = await cluster.token(namespace, 'lister');
    const nothing = await weft(t, cluster, token, ...words);
    t.is(nothing.code, 1);
    t.regex(nothing.stderr, /^weft: .*cannot list resource "pods".*\n$/);
    const apiVersion = 'rbac.authorization.k8s.io/v1';
    const metadata = { name: 'lister', namespace };
    const rules = [{ apiGroups: [''], resources: ['pods'], verbs: ['list'] }];
    const roleRef = { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'lister' };
    const subjects = [{ kind: 'ServiceAccount', ...metadata }];
    const labels = {
      'app.kubernetes.io/part-of': 'weft',
      'app.kubernetes.io/name': 'weft-node-proxy',
    };
    const pod = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'proxy', namespace, labels },
      spec: { nodeName: 'nowhere', containers: [{ name: 'node-proxy', image: 'none' }] },
      status: { phase: 'Running' },
    };
    await cluster.apply(
      { apiVersion, kind: 'Role', metadata, rules },
      { apiVersion, kind: 'RoleBinding', metadata, roleRef, subjects },
      pod,
    );
    for (const command of [['status'], ['doctor'], ['get', 'certificates'], ['log-level']]) {
      const refused = await weft(t, cluster, token, '-n', namespace, ...command);
      t.is(refused.code, 1, command.join(' '));
      t.regex(refused.stderr, /"get" and "create" for pods\/portforward in namespace/);
      t.is(refused.stderr.trimEnd().split('\n').length, 1);
    }
    const logs = await weft(t, cluster, token, '-n', namespace, 'logs', 'nowhere/node-proxy');
    t.regex(logs.stderr, /^weft: .*the right "get" for pods\/log in namespace/);
    const unreached = await weft(t, cluster, cluster.server.adminToken, ...words);
    t.is(unreached.code, 0);
    t.regex(unreached.stdout, /not ready/);
    t.regex(unreached.stdout, /nowhere: /);
    await cluster.delete(pod);
  });

  test('an administrator is told what stands in the way of an installation', async (t, cluster) => {
    const namespace = await cluster.namespace('check', {
      'pod-security.kubernetes.io/enforce': 'restricted',
    });
    const found = await check(t, cluster, cluster.server.adminToken, '-n', namespace);
    t.is(found.stderr, '');
    t.is(found.code, 1);
    t.is(lineOf(found, /the API server is v1\./).status, 'ok');
    t.is(lineOf(found, /may create every kind/).status, 'ok');
    t.is(lineOf(found, /4 of 4 are there with version v1/).status, 'ok');
    const level = lineOf(found, /Pod Security level restricted/);
    t.is(level.status, 'failed');
    t.regex(level.todo ?? '', new RegExp(`kubectl label namespace ${namespace}`));
    t.is(lineOf(found, /no Linux node/).status, 'failed');
    const absent = await check(t, cluster, cluster.server.adminToken, '-n', 'not-there-yet');
    t.is(lineOf(absent, /not-there-yet is not there/).status, 'ok');
  });

  test('an account without rights is told so in each line', async (t, cluster) => {
    const namespace = await cluster.namespace('check');
    const found = await check(
      t,
      cluster,
      await cluster.token(namespace, 'nobody'),
      '-n',
      namespace,
    );
    t.is(found.stderr, '');
    t.is(found.code, 1);
    const refused = found.lines.filter(({ status }) => status === 'unknown');
    for (const what of ['nodes', 'daemonsets', 'namespaces', 'customresourcedefinitions']) {
      t.true(
        refused.some(({ says }) => says.includes(`resource "${what}"`)),
        what,
      );
    }
    t.true(refused.every(({ todo }) => todo !== null));
    const rights = lineOf(found, /^you may not: /);
    t.is(rights.status, 'failed');
    t.regex(rights.says, /create clusterroles\.rbac\.authorization\.k8s\.io in all namespaces/);
    t.false(found.lines.some(({ about, status }) => about === 'meshes' && status === 'ok'));
  });

  test('a token that the API server refuses gives no line that is right', async (t, cluster) => {
    const found = await check(t, cluster, 'not a token');
    t.deepEqual([...new Set(found.lines.map(({ status }) => status))], ['unknown']);
    t.is(found.code, 3);
  });

  test('a release is judged where one is installed', async (t, cluster) => {
    const namespace = await cluster.namespace('check');
    const proxy = await workload('weft-node-proxy', namespace);
    const status = { currentNumberScheduled: 2, numberMisscheduled: 0, desiredNumberScheduled: 2 };
    const counts = { numberReady: 1, updatedNumberScheduled: 2 };
    await cluster.apply({ ...proxy, status: { ...status, ...counts } });
    const behind = await check(t, cluster, cluster.server.adminToken, '-n', namespace);
    const line = lineOf(behind, /DaemonSet weft-node-proxy: 1 of 2 pods are ready/);
    t.is(line.status, 'failed');
    t.regex(line.todo ?? '', /describe pods/);
    t.is(lineOf(behind, /no admission webhook/).status, 'warning');
    await cluster.apply({ ...proxy, status: { ...status, ...counts, numberReady: 2 } });
    const whole = await check(t, cluster, cluster.server.adminToken, '-n', namespace);
    t.is(lineOf(whole, /all pods of 1 workloads are ready/).status, 'ok');
    t.is(lineOf(whole, /may use every read command/).status, 'ok');
    await cluster.delete(proxy);
  });

  test('in the place of ztunnel the account must be the one that istiod trusts', async (t, cluster) => {
    const namespace = await cluster.namespace('check');
    const other = await cluster.namespace('check');
    const istiod = (trusted: string): TestObject =>
      deployment(
        namespace,
        'istiod',
        { app: 'istiod' },
        {
          PILOT_ENABLE_AMBIENT: 'true',
          CA_TRUSTED_NODE_ACCOUNTS: trusted,
        },
      );
    const account = { apiVersion: 'v1', kind: 'ServiceAccount' };
    await cluster.apply(istiod(`${other}/ztunnel`), {
      ...account,
      metadata: { name: 'ztunnel', namespace },
    });
    const words = ['-n', namespace, '--replace-ztunnel'];
    const wrong = await check(t, cluster, cluster.server.adminToken, ...words);
    const trust = lineOf(wrong, new RegExp(`trusts ${other}/ztunnel, and the release`));
    t.is(trust.status, 'failed');
    t.regex(trust.todo ?? '', new RegExp(`install into ${other}`));
    t.is(lineOf(wrong, /there is no istio-cni/).status, 'failed');
    t.is(lineOf(wrong, new RegExp(`account ${namespace}/ztunnel is there`)).status, 'ok');
    await cluster.apply(istiod(`${other}/ztunnel,${namespace}/ztunnel`));
    const right = await check(t, cluster, cluster.server.adminToken, ...words);
    t.is(lineOf(right, new RegExp(`trusts the account ${namespace}/ztunnel`)).status, 'ok');
    await cluster.delete(istiod(''));
  });
});

/** Checks the command line against a cluster, with the rights of a user. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import type { ExplainResult } from '../../lib/policy/explain.ts';
import type { CheckLine } from '../../services/cli/check/line.ts';
import type { ClusterStatus } from '../../services/cli/cluster/cluster-status.ts';
import { KINDS } from '../../services/cli/get/kinds.ts';
import type { PodLine } from '../../services/cli/get/pods.ts';
import type { TraceResult } from '../../services/cli/trace/render.ts';
import { kubeconfigText } from '../kubernetes/support/kubeconfig.ts';
import { runWeft } from '../support/run-weft.ts';
import type { WeftEnd } from '../support/run-weft.ts';
import { until } from '../support/until.ts';
import type { TestCluster } from './support/cluster.ts';
import { ask, podPerNode } from './support/pods.ts';
import { SYSTEM } from './support/weft.ts';

type Weft = (...words: readonly string[]) => Promise<WeftEnd>;

interface Rule {
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

/** Makes an account with these rights in Weft's namespace, and in all of them; returns its command line. */
async function userWith(
  cluster: TestCluster,
  name: string,
  rules: { readonly system: readonly Rule[]; readonly everywhere: readonly Rule[] },
): Promise<Weft> {
  const namespace = 'default';
  const token = await cluster.objects.token(namespace, name);
  const apiVersion = 'rbac.authorization.k8s.io/v1';
  const apiGroup = 'rbac.authorization.k8s.io';
  const subjects = [{ kind: 'ServiceAccount', name, namespace }];
  const core = (list: readonly Rule[]) => list.map((rule) => ({ apiGroups: [''], ...rule }));
  const place = { name, namespace: SYSTEM };
  await cluster.objects.apply(
    { apiVersion, kind: 'Role', metadata: place, rules: core(rules.system) },
    {
      apiVersion,
      kind: 'RoleBinding',
      metadata: place,
      roleRef: { apiGroup, kind: 'Role', name },
      subjects,
    },
    { apiVersion, kind: 'ClusterRole', metadata: { name }, rules: core(rules.everywhere) },
    {
      apiVersion,
      kind: 'ClusterRoleBinding',
      metadata: { name },
      roleRef: { apiGroup, kind: 'ClusterRole', name },
      subjects,
    },
  );
  const file = join(cluster.folder, `${name}.kubeconfig`);
  const { caPem, url } = cluster.server;
  await writeFile(file, kubeconfigText({ server: url, caPem, token, current: 'none' }));
  return weftWith('--kubeconfig', file, '--context', 'test');
}

function weftWith(...chosen: readonly string[]): Weft {
  return (...words) => runWeft([...words, ...chosen]);
}

async function json<T>(weft: Weft, ...words: readonly string[]): Promise<T> {
  const { code, stdout, stderr } = await weft(...words, '-o', 'json');
  if (code !== 0) throw new Error(`weft ${words.join(' ')}: ${code}: ${stderr} ${stdout}`);
  return JSON.parse(stdout) as T;
}

const READER = {
  system: [
    { resources: ['pods'], verbs: ['list'] },
    { resources: ['pods/portforward'], verbs: ['get', 'create'] },
    { resources: ['pods/log'], verbs: ['get'] },
  ],
  everywhere: [{ resources: ['pods'], verbs: ['list'] }],
};

/** Checks that every read command works for a user who may only list pods, forward ports and read logs. */
export async function readCommands(
  t: ExecutionContext,
  cluster: TestCluster,
  namespace: string,
): Promise<void> {
  const weft = await userWith(cluster, 'reader', READER);
  const nodes = cluster.network.nodes.map(({ name }) => name).sort();
  const status = await json<ClusterStatus>(weft, 'status');
  t.true(status.ready, JSON.stringify(status));
  t.deepEqual(
    status.nodes.map(({ name }) => name),
    nodes,
  );
  for (const node of status.nodes) {
    t.true((node.enrolled ?? 0) > 0 && node.notEnrolled === 0);
    t.true((node.firstExpiry?.hours ?? 0) > 0);
  }
  t.is(status.roles.filter(({ role }) => role === 'node-proxy').length, nodes.length);
  const shown = await weft('status');
  t.regex(shown.stdout, /^release in istio-system: ready, version /);

  const [client] = await podPerNode(cluster, namespace, 'client');
  const from = present(client, 'a pod');
  const name = `${namespace}/${from.metadata.name}`;
  await ask(cluster, { namespace, pod: from }, `http://web.${namespace}/`);
  for (const kind of KINDS) {
    const lines = await json<readonly unknown[]>(weft, 'get', kind);
    if (!['nacks', 'connections', 'policies', 'conditions'].includes(kind))
      t.true(lines.length > 0, kind);
  }
  const pods = await json<readonly PodLine[]>(weft, 'get', 'pods');
  const own = pods.filter((pod) => pod.namespace === namespace);
  t.true(own.length > 0 && own.every(({ enrolled }) => enrolled));
  t.true(pods.some(({ enrolled }) => !enrolled));

  const to = `${namespace}/web:80`;
  const decision = await json<ExplainResult>(weft, 'policy', 'explain', '--from', name, '--to', to);
  t.true(decision.allowed);
  t.is(decision.path, 'hbone');
  const unknown = await weft('policy', 'explain', '--from', `${namespace}/nobody`, '--to', to);
  t.is(unknown.code, 1);
  t.regex(unknown.stderr, /nobody/);

  const trace = await until(
    async () => {
      const found = await json<TraceResult>(weft, 'trace', name, to);
      return found.source.end === null || found.destination === null ? null : found;
    },
    { what: 'both ends of a connection' },
  );
  t.is(trace.source.node, present(from.spec.nodeName, 'a node'));
  t.is(trace.destination?.peerIdentity, `spiffe://cluster.local/ns/${namespace}/sa/client`);

  const doctor = await weft('doctor');
  t.is(doctor.code, 0, doctor.stdout);
  for (const node of nodes)
    t.regex(doctor.stdout, new RegExp(`${node}: \\d+ pods of the mesh, all right`));

  const logs = await weft('logs', `${nodes[0]}/node-proxy`);
  t.is(logs.code, 0, logs.stderr);
  t.true(logs.stdout.split('\n').some((line) => line.includes('"actor":"node-proxy"')));
  const levels = await weft('log-level', 'policy=debug', '--node', present(nodes[0], 'a node'));
  t.regex(levels.stdout, /policy=debug/);
  t.is((await weft('log-level', '--reset')).code, 0);
  t.is((await weft('log-level', '--node', 'nowhere')).code, 2);
  t.true((await json<{ roots: readonly unknown[] }>(weft, 'ca', 'status')).roots.length > 0);

  const admin = weftWith('--kubeconfig', cluster.kubeconfig);
  const lines = await json<readonly CheckLine[]>(admin, 'check');
  t.true(
    lines.some(({ about, says }) => about === 'release' && /are ready and up to date/.test(says)),
  );
}

/** Checks that commands name the right that a user lacks. */
export async function missingRights(t: ExecutionContext, cluster: TestCluster): Promise<void> {
  const listing = [{ resources: ['pods'], verbs: ['list'] }];
  const lister = await userWith(cluster, 'lister', { system: listing, everywhere: [] });
  const said = [
    [lister, ['status'], /portforward.*needs the rights "get" and "create" for pods\/portforward/],
    [lister, ['get', 'workloads'], /pods\/portforward in namespace istio-system/],
    [lister, ['doctor'], /pods\/portforward in namespace istio-system/],
    [lister, ['get', 'pods'], /cannot list resource "pods"/],
    [lister, ['logs', 'ca'], /needs the right "get" for pods\/log in namespace istio-system/],
    [
      await userWith(cluster, 'nobody', { system: [], everywhere: [] }),
      ['status'],
      /cannot list resource "pods"/,
    ],
    [weftWith('--kubeconfig', cluster.kubeconfig, '-n', 'default'), ['status'], /no pod of Weft/],
  ] as const;
  for (const [weft, words, expected] of said) {
    const { code, stderr } = await weft(...words);
    t.is(code, 1, words.join(' '));
    t.regex(stderr, expected);
    t.is(stderr.trimEnd().split('\n').length, 1, stderr);
  }
}

/** Checks the command line against a cluster, with the rights of a user. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { ExecutionContext } from 'ava';
import { processEnvironment } from '../../lib/config/env.ts';
import type { TestCluster } from './support/cluster.ts';
import { SYSTEM } from './support/weft.ts';

const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;

interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

type Weft = (...words: readonly string[]) => Promise<Outcome>;

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
  const { server } = cluster;
  const data = Buffer.from(server.caPem).toString('base64');
  await writeFile(
    file,
    JSON.stringify({
      'current-context': 'none',
      clusters: [
        { name: 'test', cluster: { server: server.url, 'certificate-authority-data': data } },
      ],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
      users: [{ name: 'test', user: { token } }],
    }),
  );
  return weftWith('--kubeconfig', file, '--context', 'test');
}

function weftWith(...chosen: readonly string[]): Weft {
  return async (...words) => {
    const child = spawn(WEFT, [...words, ...chosen], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: processEnvironment(),
    });
    const [stdout, stderr, [code]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, 'close') as Promise<[number | null]>,
    ]);
    return { code, stdout, stderr };
  };
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

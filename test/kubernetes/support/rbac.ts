/** Runs actors under the roles of `infra/kubernetes/weft.yaml`, and compares the roles with what the actors did. */
import { readFile } from 'node:fs/promises';
import type { ExecutionContext } from 'ava';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { until } from '../../support/until.ts';
import type { Cluster, TestObject } from './cluster.ts';
import { MANIFESTS, objectsOf } from './helm.ts';

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

/** An account that has exactly its rights in manifests. */
export interface RoleAccount {
  readonly token: string;
  /** The name in the audit log. */
  readonly user: string;
  /** `verb group/resource` of each right. */
  readonly rights: ReadonlySet<string>;
}

const INSTALLED = 'istio-system';
const BINDINGS = new Set(['RoleBinding', 'ClusterRoleBinding']);

interface Binding extends TestObject {
  readonly roleRef: { readonly kind: string; readonly name: string };
  readonly subjects: readonly { readonly name: string }[];
}

/**
 * Applies an account and its roles: those of `objects`, or those of `infra/kubernetes/weft.yaml` for another namespace than
 * istio-system. `only` names cluster roles that are bound in this namespace alone: tests share the server, and must not write each
 * other's objects.
 */
export async function underRole(
  cluster: Cluster,
  account: string,
  options: {
    readonly namespace: string;
    readonly only?: readonly string[];
    readonly objects?: readonly TestObject[];
  },
): Promise<RoleAccount> {
  const { namespace, only = [], objects = await manifests(namespace) } = options;
  const bindings = objects.filter((object): object is Binding => BINDINGS.has(object.kind));
  const rights = new Set<string>();
  for (const binding of bindings) {
    if (!binding.subjects.some(({ name }) => name === account)) continue;
    const { kind, name } = binding.roleRef;
    const role = objects.find((one) => one.kind === kind && one.metadata.name === name);
    if (role === undefined) throw new Error(`${binding.metadata.name} names no role that exists`);
    const limited = only.some((one) => name === one.replaceAll(INSTALLED, namespace));
    await cluster.apply(
      role,
      limited
        ? { ...binding, kind: 'RoleBinding', metadata: { name: binding.metadata.name, namespace } }
        : binding,
    );
    for (const right of rightsOf((role['rules'] ?? []) as readonly Rule[])) rights.add(right);
  }
  return {
    token: await cluster.token(namespace, account),
    user: `system:serviceaccount:${namespace}:${account}`,
    rights,
  };
}

async function manifests(namespace: string): Promise<readonly TestObject[]> {
  return objectsOf((await readFile(MANIFESTS, 'utf8')).replaceAll(INSTALLED, namespace));
}

function rightsOf(rules: readonly Rule[]): string[] {
  return rules.flatMap(({ apiGroups, resources, verbs }) =>
    apiGroups.flatMap((group) =>
      resources.flatMap((resource) => verbs.map((verb) => `${verb} ${group}/${resource}`)),
    ),
  );
}

/**
 * Lets clients of this file's thread meet an API server that streams no lists, as older ones do: lists have pages then. It ends with
 * the test.
 */
export function refuseStreamedLists(t: ExecutionContext): void {
  const open = KubernetesClient.prototype.stream;
  KubernetesClient.prototype.stream = function paged(request) {
    return request.query?.['sendInitialEvents'] === undefined
      ? open.call(this, request)
      : Promise.reject(new MeshError('KUBERNETES_INVALID', 'this server streams no lists'));
  };
  t.teardown(() => {
    KubernetesClient.prototype.stream = open;
  });
}

/** Waits until the account has used every right. Throws an Error that names the unused ones. */
export async function allRightsUsed(cluster: Cluster, account: RoleAccount): Promise<void> {
  let unused: readonly string[] = [];
  const isUsed = async (): Promise<boolean> => {
    const { used } = await usedRights(cluster, account);
    unused = [...account.rights].filter((right) => !used.has(right)).toSorted();
    return unused.length === 0;
  };
  try {
    await until(isUsed, { what: 'all rights are used' });
  } catch (error) {
    throw new Error(`rights that were never used: ${unused.join(', ')}`, { cause: error });
  }
}

/** The requests of an account: those that were refused because a right is missing, and the rights that served the others. */
export async function usedRights(
  cluster: Cluster,
  account: RoleAccount,
): Promise<{ readonly refused: string[]; readonly used: ReadonlySet<string> }> {
  const refused: string[] = [];
  const used = new Set<string>();
  for (const request of await cluster.audited(account.user)) {
    const { verb, group, resource, subresource, namespace, name, code } = request;
    // Paths such as /version are open to all.
    if (resource === '') continue;
    const right = `${verb} ${group}/${resource}${subresource === '' ? '' : `/${subresource}`}`;
    if (code === 403) refused.push(`${right} ${namespace}/${name}`);
    else used.add(right);
  }
  return { refused, used };
}

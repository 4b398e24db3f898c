/** The stores of the CA in Kubernetes. */
import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { findConnection } from '../../../lib/kubernetes/connection.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { MetricRegistry } from '../../../lib/metrics/registry.ts';
import type { CaConfig } from '../config.ts';
import { folderFiles } from '../plugged-authority.ts';
import type { PluggedFiles } from '../plugged-authority.ts';
import type { CaStores, PublishedRoots } from '../stores.ts';
import { readText } from './config-maps.ts';
import { HolderMaps } from './holder-maps.ts';
import { SecretObject } from './secret.ts';
import type { SecretDeps } from './secret.ts';
import { StateSecret } from './state-secret.ts';

/** Istio's names (docs/spec/istiod-ambient.md §4.4). */
const OWN_SECRET = 'istio-ca-secret';
const PLUGGED_SECRET = 'cacerts';

/** The ConfigMap of the roots, and its key. */
export const ROOTS = { name: 'istio-ca-root-cert', key: 'root-cert.pem' } as const;

/** The namespace of Istio's system, where the account tells none. */
const SYSTEM_NAMESPACE = 'istio-system';

/** Opens a client of the API server. Throws CONFIG_INVALID when there is none to be found. The caller closes it. */
export async function openClient(
  { kubernetes, tls }: Pick<CaConfig, 'kubernetes' | 'tls'>,
  deps: { readonly clock: Clock; readonly metrics?: MetricRegistry },
): Promise<KubernetesClient> {
  const { clock, metrics } = deps;
  return new KubernetesClient(await findConnection(kubernetes), {
    clock,
    tls,
    userAgent: 'weft-ca',
    ...(metrics === undefined ? {} : { metrics }),
  });
}

/** The namespace of the CA's objects. */
export function namespaceOf(
  { namespace }: Pick<CaConfig, 'namespace'>,
  client: Pick<KubernetesClient, 'namespace'>,
): string {
  return namespace ?? client.namespace ?? SYSTEM_NAMESPACE;
}

/**
 * The stores in the API server. The certificate of another authority is that of the configured folder, else that of the Secret
 * `cacerts`, which may also appear later.
 */
export async function kubernetesStores(
  config: Pick<CaConfig, 'namespace' | 'pluggedDir'>,
  deps: SecretDeps,
): Promise<CaStores> {
  const { client } = deps;
  const namespace = namespaceOf(config, client);
  return {
    ...(await pluggedFiles(config.pluggedDir, namespace, deps)),
    state: new StateSecret(new SecretObject(namespace, OWN_SECRET, deps)),
    holders: new HolderMaps(client, namespace),
    published: () => publishedRoots(client, namespace),
  };
}

async function pluggedFiles(
  dir: string | null,
  namespace: string,
  deps: SecretDeps,
): Promise<Pick<CaStores, 'plugged' | 'pluggedLater'>> {
  if (dir !== null) return { plugged: folderFiles(dir, deps), pluggedLater: null };
  const secret = new SecretObject(namespace, PLUGGED_SECRET, deps);
  const files: PluggedFiles = {
    where: secret.where,
    async read(names) {
      const found = (await secret.read())?.files ?? {};
      return names.map((name) => found[name] ?? null);
    },
    follow: (changed) => secret.follow(changed),
  };
  return (await secret.read()) === null
    ? { plugged: null, pluggedLater: files }
    : { plugged: files, pluggedLater: null };
}

async function publishedRoots(
  client: KubernetesClient,
  namespace: string,
): Promise<PublishedRoots | null> {
  const pem = (await readText(client, namespace, ROOTS)) ?? '';
  return pem.trim() === '' ? null : { where: `ConfigMap ${namespace}/${ROOTS.name}`, pem };
}

/** Finds the cluster of a command: the user's kubeconfig, as kubectl does. */
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { processEnvironment } from '../../../lib/config/env.ts';
import { systemClock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { findConnection, readKubeconfig } from '../../../lib/kubernetes/connection.ts';
import type { KubernetesConnection } from '../../../lib/kubernetes/connection.ts';
import { execCredentials } from '../../../lib/kubernetes/exec-credentials.ts';
import type { ClusterOptions } from '../output.ts';

/** The namespace of Weft's release when the user names none. */
export const DEFAULT_NAMESPACE = 'istio-system';

/** A cluster and the namespace of Weft's release in it. The owner closes the client. */
export interface ClusterAccess {
  readonly client: KubernetesClient;
  readonly namespace: string;
}

/** Opens the cluster. Throws CONFIG_INVALID that names the file and the field. */
export async function openCluster(options: ClusterOptions): Promise<ClusterAccess> {
  const client = new KubernetesClient(await connection(options), {
    clock: systemClock,
    userAgent: 'weft-cli',
  });
  return { client, namespace: options.namespace ?? DEFAULT_NAMESPACE };
}

async function connection({ kubeconfig, context }: ClusterOptions): Promise<KubernetesConnection> {
  const files = kubeconfig === undefined ? kubeconfigFiles() : [kubeconfig];
  const environment = processEnvironment();
  const exec = (program: unknown) => execCredentials(program, environment);
  if (files.length > 0) return readKubeconfig(files, { exec, context });
  const serviceHost = environment['KUBERNETES_SERVICE_HOST'] ?? null;
  if (serviceHost === null) {
    throw new MeshError(
      'CONFIG_INVALID',
      'no cluster: give --kubeconfig, set KUBECONFIG, or write ~/.kube/config',
    );
  }
  const servicePort = Number(environment['KUBERNETES_SERVICE_PORT'] ?? 443);
  return findConnection({ kubeconfig: null, serviceHost, servicePort });
}

/** Paths of the user's kubeconfig files that exist: those of KUBECONFIG, else the one in the home folder. */
export function kubeconfigFiles(): readonly string[] {
  const named = processEnvironment()['KUBECONFIG'];
  const files =
    named === undefined || named === ''
      ? [join(homedir(), '.kube', 'config')]
      : named.split(delimiter);
  return files.filter((file) => file !== '' && existsSync(file));
}

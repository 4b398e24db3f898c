/** Makes the kubeconfig with which the plugin's helper reads pods. */
import { readMaterial } from '../../../lib/kubernetes/connection.ts';
import type { KubernetesConnection } from '../../../lib/kubernetes/connection.ts';

/**
 * Returns a kubeconfig in JSON, which is YAML too, with this token and the roots as they are now: on the host there are no files of
 * the pod. Throws the file system's error for roots that cannot be read.
 */
export async function kubeconfigText(
  { server, serverName, ca }: Pick<KubernetesConnection, 'server' | 'serverName' | 'ca'>,
  token: string,
): Promise<string> {
  const roots = ca === null ? null : await readMaterial(ca);
  return `${JSON.stringify(
    {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [
        {
          name: 'local',
          cluster: {
            server: server.href,
            ...(roots === null
              ? {}
              : { 'certificate-authority-data': Buffer.from(roots).toString('base64') }),
            ...(serverName === null ? {} : { 'tls-server-name': serverName }),
          },
        },
      ],
      users: [{ name: 'weft-cni', user: { token } }],
      contexts: [{ name: 'weft-cni-context', context: { cluster: 'local', user: 'weft-cni' } }],
      'current-context': 'weft-cni-context',
    },
    null,
    2,
  )}\n`;
}

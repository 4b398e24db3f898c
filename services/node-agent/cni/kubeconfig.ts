/** Makes the kubeconfig with which the plugin's helper reads pods. */
import { Credentials } from '../../../lib/kubernetes/credentials.ts';
import type { KubernetesConnection } from '../../../lib/kubernetes/connection.ts';
import type { Clock } from '../../../lib/clock/clock.ts';

/**
 * Returns a kubeconfig in JSON, which is YAML too, with the credentials as they are now: on the host there are no files of the
 * pod. Throws KUBERNETES_REFUSED that names the file which cannot be read.
 */
export async function kubeconfigText(
  connection: KubernetesConnection,
  clock: Clock,
): Promise<string> {
  const { token, ca, cert, key } = await new Credentials(connection, clock).read();
  const { server, serverName } = connection;
  return `${JSON.stringify(
    {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [
        {
          name: 'local',
          cluster: {
            server: server.href,
            ...(ca === undefined ? {} : { 'certificate-authority-data': base64(ca) }),
            ...(serverName === null ? {} : { 'tls-server-name': serverName }),
          },
        },
      ],
      users: [
        {
          name: 'weft-cni',
          user: {
            ...(token === null ? {} : { token }),
            ...(cert === undefined ? {} : { 'client-certificate-data': base64(cert) }),
            ...(key === undefined ? {} : { 'client-key-data': base64(key) }),
          },
        },
      ],
      contexts: [{ name: 'weft-cni-context', context: { cluster: 'local', user: 'weft-cni' } }],
      'current-context': 'weft-cni-context',
    },
    null,
    2,
  )}\n`;
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}

/** Settings of the connection to a Kubernetes API server. */
import { port, text } from '../config/fields.ts';
import type { ConnectionSource } from './connection.ts';

/** The variables; {@link connectionSource} maps their values. */
export const kubernetesVariables = {
  KUBECONFIG: {
    schema: text({ optional: true }),
    description:
      "kubeconfig file of the Kubernetes API server; the pod's service account when unset",
  },
  KUBERNETES_SERVICE_HOST: {
    schema: text({ optional: true }),
    description: 'set by Kubernetes: the API server, and the default CA_ADDRESS',
  },
  KUBERNETES_SERVICE_PORT: {
    schema: port({ optional: true }),
    description: 'set by Kubernetes: port of the API server',
  },
} as const;

/** Returns where to look for the API server. */
export function connectionSource(values: {
  readonly KUBECONFIG: string | null;
  readonly KUBERNETES_SERVICE_HOST: string | null;
  readonly KUBERNETES_SERVICE_PORT: number | null;
}): ConnectionSource {
  return {
    kubeconfig: values.KUBECONFIG,
    serviceHost: values.KUBERNETES_SERVICE_HOST,
    servicePort: values.KUBERNETES_SERVICE_PORT,
  };
}

/** Settings of the objects' source and of the connection to a Kubernetes API server. */
import { oneOf, port, text } from '../config/fields.ts';
import type { ConnectionSource } from './connection.ts';

/** The variables; {@link connectionSource} maps their values. */
export const kubernetesVariables = {
  WEFT_SOURCE: {
    schema: oneOf('manifests', 'kubernetes')({ default: 'manifests' }),
    description:
      'where objects, tokens and the state come from: manifests and a folder, or a Kubernetes API server',
    when: 'the mesh runs on Kubernetes',
  },
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

/**
 * Checks the settings that depend on the source. Throws an Error that names those of the manifest source (`ofManifests`) that are set
 * for an API server, with the reason, and for manifests without a key set.
 */
export function checkSourceSettings<Name extends string>(
  values: { readonly WEFT_SOURCE: string; readonly WEFT_TOKEN_JWKS_PATH: string | null } & Readonly<
    Record<Name, unknown>
  >,
  ofManifests: readonly Name[],
  reason: string,
): void {
  if (values.WEFT_SOURCE === 'kubernetes') {
    const foreign = ofManifests.filter((name) => values[name] !== null);
    if (foreign.length === 0) return;
    throw new Error(`${foreign.join(', ')} cannot be set with WEFT_SOURCE=kubernetes: ${reason}`);
  }
  if (values.WEFT_TOKEN_JWKS_PATH === null) {
    throw new Error('WEFT_TOKEN_JWKS_PATH is required: it decides which tokens are accepted');
  }
}

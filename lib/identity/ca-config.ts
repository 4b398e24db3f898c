/** Settings of the CA's clients (docs/spec/control.md §1). */
import type { Environment } from '../config/env.ts';
import { makeField, text } from '../config/fields.ts';
import { clusterId, clusterVariables } from './cluster.ts';
import { headersFromEnvironment, parseServerAddress } from '../grpc/client.ts';
import type { GrpcClientOptions } from '../grpc/client.ts';
import { rootVariables } from './mesh-roots.ts';
import { tlsPolicy, tlsVariables } from '../tls/variables.ts';

const serverAddress = makeField((value) => {
  parseServerAddress(value);
  return value;
});

/** The variables; {@link caClientConfig} maps their values. */
export const caClientVariables = {
  ...tlsVariables,
  CA_ADDRESS: {
    schema: serverAddress({ optional: true }),
    description: 'https://host:port of the CA; default istiod of the cluster, else localhost:15012',
  },
  KUBERNETES_SERVICE_HOST: {
    schema: text({ optional: true }),
    description: 'set by Kubernetes; decides the default CA_ADDRESS',
  },
  ...rootVariables,
  ALT_CA_HOSTNAME: {
    schema: text({ optional: true }),
    description: "another name the CA's server certificate may carry",
  },
  AUTH_TOKEN: {
    schema: text({ optional: true }),
    description: 'the token to show: a path, read for every request, or the token itself',
  },
  ...clusterVariables,
} as const;

/** The parsed values of {@link caClientVariables} that {@link caClientConfig} reads. */
export type CaClientValues = Parameters<typeof clusterId>[0] &
  Parameters<typeof tlsPolicy>[0] & {
    readonly CA_ADDRESS: string | null;
    readonly KUBERNETES_SERVICE_HOST: string | null;
    readonly CA_ROOT_CA: string;
    readonly ALT_CA_HOSTNAME: string | null;
    readonly AUTH_TOKEN: string | null;
  };

/** The address of istiod, by the variable KUBERNETES_SERVICE_HOST. */
export function defaultServer(kubernetes: string | null | undefined): string {
  const inCluster = kubernetes !== null && kubernetes !== undefined;
  return inCluster ? 'https://istiod.istio-system.svc:15012' : 'https://localhost:15012';
}

/** The connection to the CA; {@link withCaHeaders} adds its headers. */
export function caClientConfig(values: CaClientValues): Omit<GrpcClientOptions, 'maxReceiveBytes'> {
  return {
    address: values.CA_ADDRESS ?? defaultServer(values.KUBERNETES_SERVICE_HOST),
    rootCa: values.CA_ROOT_CA,
    altHostname: values.ALT_CA_HOSTNAME,
    authToken: values.AUTH_TOKEN,
    clusterId: clusterId(values),
    headers: {},
    tls: tlsPolicy(values),
  };
}

/** Adds the metadata of `CA_HEADER_<name>` variables. Throws CONFIG_INVALID for an unusable name or value. */
export function withCaHeaders<Config extends { readonly ca: object }>(
  config: Config,
  environment: Environment,
): Config {
  const headers = headersFromEnvironment(environment, 'CA_HEADER_');
  return { ...config, ca: { ...config.ca, headers } };
}

import { busConfig, busVariables } from '../../lib/bus/config.ts';
import type { BusConfig } from '../../lib/bus/config.ts';
import { deepFreeze, defineConfig } from '../../lib/config/define-config.ts';
import { duration, makeField, text } from '../../lib/config/fields.ts';
import type { ConfigSpec } from '../../lib/config/spec.ts';
import { clusterId, clusterVariables } from '../../lib/identity/cluster.ts';
import { meshRoots, rootVariables } from '../../lib/identity/mesh-roots.ts';
import type { RootSource } from '../../lib/identity/roots.ts';
import { tlsPolicy, tlsVariables } from '../../lib/identity/tls-config.ts';
import { headersFromEnvironment, parseServerAddress } from '../../lib/identity/grpc-client.ts';
import { MAX_ANSWER_BYTES } from '../../lib/identity/ca-client.ts';
import type { GrpcClientOptions } from '../../lib/identity/grpc-client.ts';

/** Everything the fetcher is told; times in milliseconds. */
export interface CertFetcherConfig {
  readonly bus: BusConfig;
  readonly ca: GrpcClientOptions;
  /** What the roots that come with a certificate are compared with. */
  readonly meshRoots: RootSource;
  /** Life of the certificates asked for. */
  readonly lifetimeMs: number;
}

const DEFAULT_LIFETIME_MS = 86_400_000;

const serverAddress = makeField((value) => {
  parseServerAddress(value);
  return value;
});

const variables = {
  ...busVariables,
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
    description: "the node's token: a path, read for every request, or the token",
  },
  ...clusterVariables,
  SECRET_TTL: {
    schema: duration({ default: DEFAULT_LIFETIME_MS }),
    description: 'life of the certificates asked for',
  },
};

const base = defineConfig(variables, (values): CertFetcherConfig => {
  const inCluster = values.KUBERNETES_SERVICE_HOST !== null;
  if (values.SECRET_TTL < 1_000) throw new Error('SECRET_TTL must be at least 1s');
  return {
    bus: busConfig(values),
    ca: {
      address:
        values.CA_ADDRESS ??
        (inCluster ? 'https://istiod.istio-system.svc:15012' : 'https://localhost:15012'),
      rootCa: values.CA_ROOT_CA,
      altHostname: values.ALT_CA_HOSTNAME,
      authToken: values.AUTH_TOKEN,
      clusterId: clusterId(values),
      headers: {},
      tls: tlsPolicy(values),
      maxReceiveBytes: MAX_ANSWER_BYTES,
    },
    meshRoots: meshRoots(values),
    lifetimeMs: values.SECRET_TTL,
  };
});

/** Environment of the fetcher (docs/spec/control.md §1); `CA_HEADER_<name>` adds metadata to every request. */
export const certFetcherConfig: ConfigSpec<CertFetcherConfig> = {
  variables: base.variables,
  parse(environment) {
    const config = base.parse(environment);
    const headers = headersFromEnvironment(environment, 'CA_HEADER_');
    return deepFreeze({ ...config, ca: { ...config.ca, headers } });
  },
};

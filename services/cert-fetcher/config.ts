import { busConfig, busVariables } from '../../lib/bus/config.ts';
import type { BusConfig } from '../../lib/bus/config.ts';
import { deepFreeze, defineConfig } from '../../lib/config/define-config.ts';
import { duration } from '../../lib/config/fields.ts';
import type { ConfigSpec } from '../../lib/config/spec.ts';
import { caClientConfig, caClientVariables, withCaHeaders } from '../../lib/identity/ca-config.ts';
import { meshRoots } from '../../lib/identity/mesh-roots.ts';
import type { RootSource } from '../../lib/tls/roots.ts';
import { MAX_ANSWER_BYTES } from '../../lib/identity/ca-client.ts';
import type { GrpcClientOptions } from '../../lib/grpc/client.ts';

/** Configuration of the fetcher; times in milliseconds. */
export interface CertFetcherConfig {
  readonly bus: BusConfig;
  readonly ca: GrpcClientOptions;
  /** The mesh's roots, which the roots of the CA's answers are compared with. */
  readonly meshRoots: RootSource;
  /** Life of the certificates asked for. */
  readonly lifetimeMs: number;
}

const DEFAULT_LIFETIME_MS = 86_400_000;

const variables = {
  ...busVariables,
  ...caClientVariables,
  SECRET_TTL: {
    schema: duration({ default: DEFAULT_LIFETIME_MS }),
    description: 'life of the certificates asked for',
  },
};

const base = defineConfig(variables, (values): CertFetcherConfig => {
  if (values.SECRET_TTL < 1_000) throw new Error('SECRET_TTL must be at least 1s');
  return {
    bus: busConfig(values),
    ca: { ...caClientConfig(values), maxReceiveBytes: MAX_ANSWER_BYTES },
    meshRoots: meshRoots(values),
    lifetimeMs: values.SECRET_TTL,
  };
});

/** Environment of the fetcher (docs/spec/control.md §1); `CA_HEADER_<name>` adds metadata to every request. */
export const certFetcherConfig: ConfigSpec<CertFetcherConfig> = {
  variables: base.variables,
  parse(environment) {
    return deepFreeze(withCaHeaders(base.parse(environment), environment));
  },
};

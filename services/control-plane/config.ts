import { availableParallelism } from 'node:os';
import { busConfig, busVariables, parseRedisUrl } from '../../lib/bus/config.ts';
import type { BusConfig } from '../../lib/bus/config.ts';
import { deepFreeze, defineConfig } from '../../lib/config/define-config.ts';
import {
  accounts,
  bool,
  duration,
  endpoint,
  integer,
  makeField,
  text,
} from '../../lib/config/fields.ts';
import type { Endpoint } from '../../lib/config/fields.ts';
import type { ConfigSpec } from '../../lib/config/spec.ts';
import { caClientConfig, caClientVariables, withCaHeaders } from '../../lib/identity/ca-config.ts';
import { clusterId } from '../../lib/identity/cluster.ts';
import { meshRoots } from '../../lib/identity/mesh-roots.ts';
import type { RootSource } from '../../lib/tls/roots.ts';
import type { GrpcClientOptions } from '../../lib/grpc/client.ts';
import type { ConnectionSource } from '../../lib/kubernetes/connection.ts';
import {
  checkSourceSettings,
  connectionSource,
  kubernetesVariables,
} from '../../lib/kubernetes/variables.ts';
import { tokenVariables } from '../../lib/identity/token-config.ts';
import { meshConfigVariables } from '../../lib/mesh-config/variables.ts';
import type { TokenVerifierOptions } from '../../lib/identity/token.ts';
import { formatPrefix, parsePrefix } from '../../lib/net/prefix.ts';
import type { MeshSettings } from './mapping/settings.ts';
import type { AddressRanges } from './store/address-allocation.ts';

/** Settings of the control plane; times in milliseconds. */
export interface ControlPlaneConfig {
  readonly listen: Endpoint;
  /** Where the objects come from. */
  readonly source: 'manifests' | 'kubernetes';
  readonly kubernetes: ConnectionSource;
  /** The address of the admission webhook; null: none. */
  readonly webhookListen: Endpoint | null;
  readonly manifestsDir: string | null;
  readonly apiSocket: string | null;
  /** Socket that serves only the watch of pods; null without one. */
  readonly podsSocket: string | null;
  readonly stateDir: string;
  readonly settings: MeshSettings;
  /** File with the MeshConfig; null takes the ConfigMap. */
  readonly meshConfig: string | null;
  readonly ranges: AddressRanges;
  /** Null: no nodes are followed, and the manifests say which pods are served. */
  readonly bus: BusConfig | null;
  readonly ca: Omit<GrpcClientOptions, 'maxReceiveBytes'>;
  /** Roots that its own certificate must chain to. */
  readonly meshRoots: RootSource;
  readonly debounce: { readonly quietMs: number; readonly maxMs: number };
  readonly streamsPerSecond: number;
  readonly maxStreamAgeMs: number;
  /** Clients that are sent changes at the same time. */
  readonly pushThrottle: number;
  /** `namespace/serviceAccount` that may read the mesh. */
  readonly accounts: readonly string[];
  readonly token: Omit<TokenVerifierOptions, 'jwksPath'> & {
    /** Null where the API server verifies tokens. */
    readonly jwksPath: string | null;
  };
}

/** Service accounts of the node proxies and of Weft's ingester. */
const NODE_ACCOUNTS = ['ztunnel', 'weft-xds-ingester'] as const;
/** Upstream derives the rate from its number of CPUs, up to this value. */
const DEFAULT_STREAMS_PER_SECOND = 100;

/** Istio's ranges for ServiceEntries without addresses. They are reserved, so they overlap with no real address. */
const ENTRY_RANGES = { v4: parsePrefix('240.240.0.0/16'), v6: parsePrefix('2001:2::/48') };

/** One IPv4 and one IPv6 range. */
const ranges = makeField(
  (value) => {
    const prefixes = value.split(',').map((part) => parsePrefix(part.trim()));
    const v4 = prefixes.find((prefix) => prefix.family === 4);
    const v6 = prefixes.find((prefix) => prefix.family === 6);
    if (prefixes.length !== 2 || v4 === undefined || v6 === undefined) {
      throw new Error('must be one IPv4 and one IPv6 range, separated by a comma');
    }
    if (v4.length > 26 || v6.length > 122) throw new Error('must hold at least 64 addresses each');
    return { v4, v6 };
  },
  ({ v4, v6 }) => `${formatPrefix(v4)},${formatPrefix(v6)}`,
);

/** Upstream's default for clients that are written to at the same time. */
function defaultThrottle(): number {
  return Math.min(15 + 5 * availableParallelism(), 100);
}

const variables = {
  ...busVariables,
  REDIS_URL: {
    schema: makeField(parseRedisUrl)({ optional: true }),
    description:
      'Redis with the enrolments of the nodes; without it the manifests say which pods are enrolled',
  },
  WEFT_LISTEN: {
    schema: endpoint({ default: { kind: 'tcp', host: '::', port: 15_012 } }),
    description: 'where delta ADS listens (TLS); [::] takes IPv4 too',
    when: '15012 is taken, or only one address may be reached',
  },
  WEFT_CONTROL_PLANE_WEBHOOK_LISTEN: {
    schema: endpoint({ optional: true }),
    description: 'where the admission webhook listens (HTTPS, /validate); none when unset',
    when: 'the API server is to refuse objects that cannot be enforced; Istio has [::]:15017',
  },
  WEFT_CONTROL_PLANE_MANIFESTS_DIR: {
    schema: text({ optional: true }),
    description: 'folder of manifest files to follow',
    when: 'objects come from files; needed unless the manifest API is on',
  },
  WEFT_CONTROL_PLANE_API_SOCKET: {
    schema: text({ optional: true }),
    description: 'unix socket of the manifest API',
    when: 'objects come from `weft apply`',
  },
  WEFT_PODS_SOCKET: {
    schema: text({ optional: true }),
    description:
      'unix socket that serves only the watch of pods, for the CA; in a folder of its own',
    when: 'a CA checks requests against the pods',
  },
  WEFT_STATE_DIR: {
    schema: text({ default: '/var/lib/weft/control-plane' }),
    description: 'folder of the object store and of the serving certificate',
    when: 'the state is on another volume',
  },
  WEFT_CONTROL_PLANE_SERVICE_CIDRS: {
    schema: ranges({
      default: { v4: parsePrefix('10.96.0.0/16'), v6: parsePrefix('fd00:96::/112') },
    }),
    description: 'ranges of service addresses: IPv4,IPv6',
    when: 'the range overlaps with addresses in use',
  },
  CLUSTER_DOMAIN: {
    schema: text({ default: 'cluster.local' }),
    description: 'last part of the host names of services',
  },
  POD_NAMESPACE: {
    schema: text({ default: 'istio-system' }),
    description: "the control plane's namespace, whose policies apply to the whole mesh",
  },
  TRUST_DOMAIN: {
    schema: text({ default: 'cluster.local' }),
    description: 'trust domain of the workloads',
  },
  AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY: {
    schema: bool({ default: false }),
    description: 'send policies annotated as dry run',
  },
  PILOT_DEBOUNCE_AFTER: {
    schema: duration({ default: 100 }),
    description: 'changes are sent when no other change came for this long',
  },
  PILOT_DEBOUNCE_MAX: {
    schema: duration({ default: 1_000 }),
    description: 'changes are sent at the latest this long after the first',
  },
  PILOT_MAX_REQUESTS_PER_SECOND: {
    schema: integer({ min: 1, max: 100_000 })({ default: DEFAULT_STREAMS_PER_SECOND }),
    description: 'new streams accepted in a second',
  },
  PILOT_PUSH_THROTTLE: {
    schema: integer({ min: 1, max: 10_000 })({ optional: true }),
    description:
      'clients that are written to at the same time; when unset 15 and 5 for each processor, at most 100',
  },
  KEEPALIVE_MAX_SERVER_CONNECTION_AGE: {
    schema: duration({ default: 30 * 60_000 }),
    description: 'streams are ended at this age, give or take a tenth; their clients resume',
  },
  ...meshConfigVariables,
  PILOT_AUTO_ALLOW_WAYPOINT_POLICY: {
    schema: bool({ default: false }),
    description: 'let workloads behind a waypoint be reached only through it',
  },
  WEFT_CONTROL_PLANE_XDS_ACCOUNTS: {
    schema: accounts({ optional: true }),
    description:
      'accounts that may read the mesh, comma-separated; ztunnel and weft-xds-ingester of the root namespace when unset',
    when: 'proxies or ingesters run under other accounts',
  },
  ...caClientVariables,
  ...kubernetesVariables,
  ...tokenVariables,
};

/** Settings of the manifest source only. */
const OF_MANIFESTS = [
  'WEFT_CONTROL_PLANE_MANIFESTS_DIR',
  'WEFT_CONTROL_PLANE_API_SOCKET',
  'WEFT_PODS_SOCKET',
  'REDIS_URL',
  'WEFT_TOKEN_JWKS_PATH',
  'TOKEN_ISSUER',
] as const;

function checkSource(
  values: { readonly WEFT_SOURCE: string; readonly WEFT_TOKEN_JWKS_PATH: string | null } & Readonly<
    Record<(typeof OF_MANIFESTS)[number] | 'WEFT_CONTROL_PLANE_WEBHOOK_LISTEN', unknown>
  >,
): void {
  checkSourceSettings(values, OF_MANIFESTS, 'the API server has all objects and reviews tokens');
  if (values.WEFT_SOURCE === 'kubernetes') return;
  if (values.WEFT_CONTROL_PLANE_WEBHOOK_LISTEN !== null) {
    throw new Error(
      'WEFT_CONTROL_PLANE_WEBHOOK_LISTEN needs WEFT_SOURCE=kubernetes: `weft apply` checks manifests itself',
    );
  }
  if (
    values.WEFT_CONTROL_PLANE_MANIFESTS_DIR === null &&
    values.WEFT_CONTROL_PLANE_API_SOCKET === null
  ) {
    throw new Error(
      'WEFT_CONTROL_PLANE_MANIFESTS_DIR or WEFT_CONTROL_PLANE_API_SOCKET is required: manifests must come from somewhere',
    );
  }
}

const base = defineConfig(variables, (values): ControlPlaneConfig => {
  checkSource(values);
  const services = values.WEFT_CONTROL_PLANE_SERVICE_CIDRS;
  return {
    listen: values.WEFT_LISTEN,
    source: values.WEFT_SOURCE,
    kubernetes: connectionSource(values),
    webhookListen: values.WEFT_CONTROL_PLANE_WEBHOOK_LISTEN,
    manifestsDir: values.WEFT_CONTROL_PLANE_MANIFESTS_DIR,
    apiSocket: values.WEFT_CONTROL_PLANE_API_SOCKET,
    podsSocket: values.WEFT_PODS_SOCKET,
    stateDir: values.WEFT_STATE_DIR,
    settings: {
      clusterId: clusterId(values),
      trustDomain: values.TRUST_DOMAIN,
      domain: values.CLUSTER_DOMAIN,
      policies: {
        rootNamespace: values.POD_NAMESPACE,
        dryRun: values.AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY,
      },
      allowFromWaypoint: values.PILOT_AUTO_ALLOW_WAYPOINT_POLICY,
    },
    meshConfig: values.WEFT_MESH_CONFIG,
    ranges: {
      serviceV4: services.v4,
      serviceV6: services.v6,
      entryV4: ENTRY_RANGES.v4,
      entryV6: ENTRY_RANGES.v6,
    },
    bus: values.REDIS_URL === null ? null : busConfig({ ...values, REDIS_URL: values.REDIS_URL }),
    ca: caClientConfig(values),
    meshRoots: meshRoots(values),
    debounce: { quietMs: values.PILOT_DEBOUNCE_AFTER, maxMs: values.PILOT_DEBOUNCE_MAX },
    streamsPerSecond: values.PILOT_MAX_REQUESTS_PER_SECOND,
    maxStreamAgeMs: values.KEEPALIVE_MAX_SERVER_CONNECTION_AGE,
    pushThrottle: values.PILOT_PUSH_THROTTLE ?? defaultThrottle(),
    accounts:
      values.WEFT_CONTROL_PLANE_XDS_ACCOUNTS ??
      NODE_ACCOUNTS.map((account) => `${values.POD_NAMESPACE}/${account}`),
    token: {
      jwksPath: values.WEFT_TOKEN_JWKS_PATH,
      audiences: values.TOKEN_AUDIENCES,
      issuer: values.TOKEN_ISSUER,
    },
  };
});

/** Environment of the control plane; `CA_HEADER_<name>` adds metadata to requests to the CA. */
export const controlPlaneConfig: ConfigSpec<ControlPlaneConfig> = {
  variables: base.variables,
  parse(environment) {
    return deepFreeze(withCaHeaders(base.parse(environment), environment));
  },
};

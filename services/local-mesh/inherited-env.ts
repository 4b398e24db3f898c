/** Chooses the variables that actors inherit from the environment of `weft up`. Pure. */
import { otlpVariables } from '../../lib/otlp/variables.ts';
import { COMMAND_VARIABLES } from '../../lib/config/unknown-variables.ts';
import type { Environment } from '../../lib/config/env.ts';

/** Names a process in traces; its default is the actor's name. */
const SERVICE_NAME = 'OTEL_SERVICE_NAME';

/** Settings of actors under upstream's names; they apply to the whole mesh. */
export const SETTINGS: ReadonlySet<string> = new Set([
  'AMBIENT_DNS_CAPTURE',
  'AMBIENT_ENABLEMENT_SELECTOR',
  'AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY',
  'AMBIENT_IPV6',
  'AUTHZ_POLICY_INFO_LOGGING',
  'CA_TRUSTED_NODE_ACCOUNTS',
  'COMPLIANCE_POLICY',
  'CONNECTION_TERMINATION_DEADLINE',
  'CRL_PATH',
  'DEFAULT_WORKLOAD_CERT_TTL',
  'ENABLE_ORIG_SRC',
  'ENABLE_PROXY',
  'ENABLE_RESPONSE_BAGGAGE',
  'EXCLUDE_NAMESPACES',
  'FAKE_CA',
  'FORCE_IPTABLES_BINARY',
  'HOST_PROBE_SNAT_IP',
  'HOST_PROBE_SNAT_IPV6',
  'HTTP2_CONNECTION_WINDOW_SIZE',
  'HTTP2_FRAME_SIZE',
  'HTTP2_STREAM_WINDOW_SIZE',
  'INPOD_PORT_REUSE',
  'IPV6_ENABLED',
  'ISTIO_META_ISTIO_VERSION',
  'KEEPALIVE_ENABLED',
  'KEEPALIVE_INTERVAL',
  'KEEPALIVE_MAX_SERVER_CONNECTION_AGE',
  'KEEPALIVE_RETRIES',
  'KEEPALIVE_TIME',
  'LOCALHOST_APP_TUNNEL',
  'LOG_FORMAT',
  'MAX_WORKLOAD_CERT_TTL',
  'NATIVE_NFTABLES',
  'PACKET_MARK',
  'PILOT_AUTO_ALLOW_WAYPOINT_POLICY',
  'PILOT_DEBOUNCE_AFTER',
  'PILOT_DEBOUNCE_MAX',
  'PILOT_MAX_REQUESTS_PER_SECOND',
  'PILOT_PUSH_THROTTLE',
  'POOL_MAX_STREAMS_PER_CONNECTION',
  'POOL_UNUSED_RELEASE_TIMEOUT',
  'PREFERED_SERVICE_NAMESPACE',
  'ROOT_CA_DIR',
  'RUST_LOG',
  'SECRET_TTL',
  'TERMINATION_GRACE_PERIOD_SECONDS',
  'TLS12_ENABLED',
  'UNSTABLE_ENABLE_SOCKS5',
  'USER_TIMEOUT_ENABLED',
  'XDS_ON_DEMAND',
  'ZTUNNEL_CPU_LIMIT',
  'ZTUNNEL_RESOURCE_CPU_LIMIT',
  'ZTUNNEL_RESOURCE_CPU_REQUEST',
  'ZTUNNEL_WORKER_THREADS',
  ...Object.keys(otlpVariables).filter((name) => name !== SERVICE_NAME),
]);

/**
 * Variables that give a process its identity and its peers. In a local mesh the supervisor sets them. In the caller's
 * shell they describe something else, such as the pod that the shell runs in.
 */
export const DECIDED_HERE: ReadonlySet<string> = new Set([
  ...COMMAND_VARIABLES,
  'ALT_CA_HOSTNAME',
  'ALT_XDS_HOSTNAME',
  'AUTH_TOKEN',
  'CA_ADDRESS',
  'CA_ROOT_CA',
  'CLUSTER_DOMAIN',
  'CLUSTER_ID',
  'CNI_AGENT_RUN_DIR',
  'CNI_CONF_GROUP_READ',
  'CNI_CONF_NAME',
  'CONTAINER_RUNTIME_ENDPOINT',
  'DOCKER_HOST',
  'INPOD_UDS',
  'INSTANCE_IP',
  'ISTIOD_CUSTOM_HOST',
  'ISTIO_META_CLUSTER_ID',
  'ISTIO_META_DNS_CAPTURE',
  'ISTIO_META_DNS_PROXY_ADDR',
  'ISTIO_OWNED_CNI_CONFIG',
  'ISTIO_OWNED_CNI_CONFIG_FILENAME',
  'KUBECONFIG',
  'KUBECONFIG_MODE',
  'KUBERNETES_SERVICE_HOST',
  'KUBERNETES_SERVICE_PORT',
  'LOCAL_XDS',
  'LOCAL_XDS_PATH',
  'MOUNTED_CNI_NET_DIR',
  'NETWORK',
  'NODE_NAME',
  SERVICE_NAME,
  'POD_NAME',
  'POD_NAMESPACE',
  'PROXY_CONFIG',
  'PROXY_MODE',
  'PROXY_WORKLOAD_INFO',
  'REDIS_CA_FILE',
  'REDIS_PASSWORD_FILE',
  'REDIS_URL',
  'REDIS_USERNAME',
  'SERVICE_ACCOUNT',
  'TOKEN_AUDIENCES',
  'TOKEN_ISSUER',
  'TRUST_DOMAIN',
  'WEFT_LISTEN',
  'WEFT_MESH_ROOT_CA',
  // No plugin belongs on the host of a local mesh.
  'WEFT_NODE_AGENT_CNI',
  'WEFT_PODS_SOCKET',
  'WEFT_REDIS_PREFIX',
  'WEFT_SOURCE',
  'WEFT_STATE_DIR',
  'WEFT_XDS_CONTROL_PLANE',
  'XDS_ADDRESS',
  'XDS_ROOT_CA',
]);

/** Variables that any program may need, and those that help to find faults in Node and its gRPC. */
const OF_ANY_PROCESS =
  /^(?:PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|NODE_\w+|UV_\w+|GRPC_TRACE|GRPC_VERBOSITY)$/;

/**
 * The part of the caller's environment that an actor gets. `known` are the names that the actor reads; it would refuse a
 * `WEFT_*` variable of another actor. Everything else stays out, such as the caller's credentials and HTTP proxies.
 */
export function inheritedEnv(
  environment: Environment,
  known: ReadonlySet<string>,
): Readonly<Record<string, string>> {
  const passed = (name: string): boolean => {
    if (DECIDED_HERE.has(name)) return false;
    if (name.startsWith('WEFT_')) return known.has(name);
    return SETTINGS.has(name) || OF_ANY_PROCESS.test(name);
  };
  return Object.fromEntries(
    Object.entries(environment).flatMap(([name, value]) =>
      value !== undefined && passed(name) ? [[name, value] as const] : [],
    ),
  );
}

/** Whether the environment sets any variable of Weft's own actors. */
export function setsActors(environment: Environment): boolean {
  return Object.keys(environment).some(
    (name) => name.startsWith('WEFT_') && !COMMAND_VARIABLES.includes(name),
  );
}

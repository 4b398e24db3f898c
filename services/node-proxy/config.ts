import { availableParallelism } from 'node:os';
import { busConfig, busVariables } from '../../lib/bus/config.ts';
import type { BusConfig } from '../../lib/bus/config.ts';
import { defineConfig } from '../../lib/config/define-config.ts';
import type { ConfigValues } from '../../lib/config/define-config.ts';
import { drainDeadlineMs } from '../../lib/config/drain.ts';
import { text } from '../../lib/config/fields.ts';
import type { ConfigSpec } from '../../lib/config/spec.ts';
import { tlsPolicy } from '../../lib/tls/variables.ts';
import { waypointBypass } from '../../lib/state/waypoint-bypass.ts';
import { meshRoots } from '../../lib/identity/mesh-roots.ts';
import type { RootSource } from '../../lib/tls/roots.ts';
import type { HotSettings } from './pool/hot-threads.ts';
import type { ListenerSettings } from '../../workers/listener/protocol/settings.ts';
import {
  CONNECT_RETRY,
  CONNECT_TIMEOUT_MS,
  DISTRUST_GRACE_MS,
  HANDSHAKE_TIMEOUT_MS,
  HOT,
  MAX_HANDSHAKES,
  PING,
  POD_SHARE_OF_BYTES,
  READINESS_PORT,
} from './config/fixed.ts';
import { dnsSettings, dnsVariables } from './config/dns.ts';
import { onDemandSettings, onDemandVariables } from './config/on-demand.ts';
import { localSource, localStateVariables, requireSigning } from './config/local-state.ts';
import type { LocalSource } from './config/local-state.ts';
import { dedicatedWorkload, requireWork, siblingsPath } from './config/mode.ts';
import type { ProxyConfig } from './config/proxy-config.ts';
import { UNSUPPORTED_NAMES, refuseUnsupported } from './config/unsupported.ts';
import { socketConfig } from './config/sockets.ts';
import { identityVariables, processVariables, trafficVariables } from './config/variables.ts';
import { listenerThreads } from './config/worker-threads.ts';
import { ANNOUNCED_AGAIN_MS, STRANGERS_WAIT_MS } from './limits.ts';
import type { OwnPod } from './pods/own-listener.ts';
import type { OnDemandSettings, WorkloadName } from './state-thread/protocol.ts';

/** The configuration of node-proxy, in plain data; times in milliseconds. */
export interface NodeProxyConfig {
  readonly bus: BusConfig;
  readonly listener: ListenerConfig;
  /** Null when the whole mesh is followed. */
  readonly onDemand: OnDemandSettings | null;
  readonly threads: number;
  readonly zdsPath: string;
  /** Socket by which the proxies of the node share one session with the node agent; null = each has its own. */
  readonly siblingsPath: string | null;
  /** Generation announced to the node agent, which gives new pods to the newest one. */
  readonly group: number;
  /** Says when a further thread serves a pod. */
  readonly hot: HotSettings;
  /** How long a proxy that was told to end goes on accepting while no other one listens for its pods. */
  readonly handoverMs: number;
  /** How long a start waits for certificates where a proxy that Redis does not show may serve, milliseconds. */
  readonly strangersMs: number;
  /** How long the connections of a pod that left the mesh may run on. */
  readonly podDrainMs: number;
  /** The proxy itself, when it is served like a pod (docs/spec/dataplane.md §7.7). */
  readonly own: OwnPod | null;
  /** The one workload of dedicated mode, in the process's own namespace and without a node agent; null in shared mode. */
  readonly dedicatedTo: WorkloadName | null;
  /** Source of the mesh state in place of Redis; null = Redis. */
  readonly local: LocalSource | null;
  /** Roots that verify the certificates of peers and of the workloads. */
  readonly roots: RootSource;
  /** `CRL_PATH`; null when no revocation lists are configured. */
  readonly crlPath: string | null;
  readonly ports: {
    readonly admin: number;
    readonly stats: number;
    readonly readiness: number;
  };
  readonly istioVersion: string;
}

/** The settings of listener threads, without those that only the host of the actor knows. */
export type ListenerConfig = Omit<ListenerSettings, 'node' | 'logLevel' | 'logFormat'>;

/** Upstream's ports in a pod (docs/spec/dataplane.md §1). */
const POD_PORTS = { outbound: 15_001, inboundPlaintext: 15_006, inboundHbone: 15_008 } as const;
const SHARED_PACKET_MARK = 1_337;
const SOCKS5_PORT = 15_080;
const DEFAULT_ADMIN_PORT = 15_000;
const DEFAULT_STATS_PORT = 15_020;

const unsupportedVariables = Object.fromEntries(
  UNSUPPORTED_NAMES.map((name) => [
    name,
    {
      schema: text({ optional: true }),
      description: 'refused when true: not supported',
    },
  ]),
);

const variables = {
  ...unsupportedVariables,
  ...identityVariables,
  ...trafficVariables,
  ...dnsVariables,
  ...onDemandVariables,
  ...processVariables,
  ...localStateVariables,
  ...busVariables,
};

const config = defineConfig(variables, (values): NodeProxyConfig => {
  const metadata = values.PROXY_CONFIG?.proxyMetadata ?? {};
  refuseUnsupported(unsupportedValues(values, metadata));
  const dedicatedTo = dedicatedWorkload(values);
  const listener = listenerConfig(values, metadata, dedicatedTo !== null);
  const local = localSource(values);
  const onDemand = onDemandSettings(values, metadata, {
    dns: listener.dns !== null,
    local: local !== null,
  });
  return {
    bus: busConfig(values),
    listener: { ...listener, onDemandWaitMs: onDemand?.waitMs ?? null },
    onDemand,
    threads: listenerThreads({
      setting: values.ZTUNNEL_WORKER_THREADS,
      cpuLimit: values.ZTUNNEL_RESOURCE_CPU_LIMIT ?? values.ZTUNNEL_CPU_LIMIT,
      cpuRequest: values.ZTUNNEL_RESOURCE_CPU_REQUEST,
      concurrency: values.PROXY_CONFIG?.concurrency ?? null,
      cores: availableParallelism(),
    }),
    zdsPath: values.INPOD_UDS,
    siblingsPath: siblingsPath(values),
    group: values.WEFT_NODE_PROXY_GROUP,
    hot: HOT,
    handoverMs: values.WEFT_NODE_PROXY_HANDOVER,
    strangersMs: strangersMs(dedicatedTo !== null, values.WEFT_XDS_CONTROL_PLANE),
    podDrainMs: drainDeadlineMs(values),
    own: dedicatedTo === null && values.ENABLE_PROXY ? ownPod(values) : null,
    dedicatedTo,
    local,
    roots: meshRoots(values),
    crlPath: values.CRL_PATH === '' ? null : values.CRL_PATH,
    ports: {
      admin: values.PROXY_CONFIG?.proxyAdminPort ?? DEFAULT_ADMIN_PORT,
      stats: values.PROXY_CONFIG?.statsPort ?? DEFAULT_STATS_PORT,
      readiness: READINESS_PORT,
    },
    istioVersion:
      values.ISTIO_META_ISTIO_VERSION ?? metadata['ISTIO_META_ISTIO_VERSION'] ?? 'unknown',
  };
});

/** Environment of node-proxy, with upstream's names and defaults (docs/spec/observability.md §6). */
export const nodeProxyConfig: ConfigSpec<NodeProxyConfig> = {
  variables: config.variables,
  parse(environment) {
    requireSigning(environment);
    return config.parse(environment);
  },
};

type Values = ConfigValues<typeof variables>;
type Metadata = ProxyConfig['proxyMetadata'];

/** Returns how long a start waits for certificates. Nobody shares the pod of dedicated mode. */
function strangersMs(dedicated: boolean, controlPlane: Values['WEFT_XDS_CONTROL_PLANE']): number {
  if (dedicated) return 0;
  // Under Weft's own control plane every proxy of a node announces itself in its Redis.
  return controlPlane === 'weft' ? ANNOUNCED_AGAIN_MS : STRANGERS_WAIT_MS;
}

/** Returns the proxy itself; null unless all three names are known. */
function ownPod(values: Values): OwnPod | null {
  const { POD_NAME: name, POD_NAMESPACE: namespace, SERVICE_ACCOUNT: serviceAccount } = values;
  if (name === null || namespace === null || serviceAccount === null) return null;
  return { name, namespace, serviceAccount };
}

/** Returns the values of settings that may be refused; a variable goes before the same name in proxyMetadata. */
function unsupportedValues(values: Values, metadata: Metadata): Record<string, string | null> {
  const all: Readonly<Record<string, unknown>> = values;
  return Object.fromEntries(
    UNSUPPORTED_NAMES.map((name) => {
      const value = all[name] ?? metadata[name] ?? null;
      return [name, typeof value === 'string' ? value : null];
    }),
  );
}

function listenerConfig(values: Values, metadata: Metadata, dedicated: boolean): ListenerConfig {
  const dns = dnsSettings(values, metadata, dedicated ? 'resolv.conf' : null);
  requireWork(values.ENABLE_PROXY, dns);
  return {
    network: values.NETWORK,
    clusterDomain: values.CLUSTER_DOMAIN,
    ipv6: values.IPV6_ENABLED,
    packetMark: values.PACKET_MARK ?? (dedicated ? 0 : SHARED_PACKET_MARK),
    marksUpstreamOnly: dedicated,
    portReuse: values.INPOD_PORT_REUSE,
    originalSource: originalSource(values.ENABLE_ORIG_SRC),
    ...socketConfig(values),
    http2: {
      streamWindow: values.HTTP2_STREAM_WINDOW_SIZE,
      connectionWindow: values.HTTP2_CONNECTION_WINDOW_SIZE,
      frameSize: values.HTTP2_FRAME_SIZE,
      maxStreamsPerConnection: values.POOL_MAX_STREAMS_PER_CONNECTION,
      idleReleaseMs: values.POOL_UNUSED_RELEASE_TIMEOUT,
      pingIntervalMs: PING.intervalMs,
      pingTimeoutMs: PING.timeoutMs,
    },
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS,
    limits: {
      connections: values.WEFT_MAX_CONNECTIONS,
      handshakes: MAX_HANDSHAKES,
      bytes: values.WEFT_MAX_BYTES,
      bytesPerPod: Math.floor(values.WEFT_MAX_BYTES * POD_SHARE_OF_BYTES),
      connectionsPerPod: halfOf(values.WEFT_MAX_CONNECTIONS),
    },
    connectRetry: CONNECT_RETRY,
    responseBaggage: values.ENABLE_RESPONSE_BAGGAGE,
    ...tlsPolicy(values),
    revocation: values.CRL_PATH !== null && values.CRL_PATH !== '',
    distrustGraceMs: DISTRUST_GRACE_MS,
    policyUnknownReference: values.WEFT_POLICY_UNKNOWN_REFERENCE,
    waypointBypass: waypointBypass(values),
    localhostAppTunnel: values.LOCALHOST_APP_TUNNEL,
    authzInfoLogging: values.AUTHZ_POLICY_INFO_LOGGING,
    accessLog: { rules: values.WEFT_ACCESS_LOG, linesPerSecond: 0 },
    sameNodeFastPath: values.WEFT_SAME_NODE_FAST_PATH,
    ports: { ...POD_PORTS, socks5: values.UNSTABLE_ENABLE_SOCKS5 ? SOCKS5_PORT : null },
    dnsOnly: !values.ENABLE_PROXY,
    resolvConf: values.WEFT_DNS_RESOLV_CONF,
    dns,
  };
}

/** Leaves half of the connections to the other pods; null where the descriptors decide. */
function halfOf(connections: number | null): number | null {
  return connections === null ? null : Math.ceil(connections / 2);
}

function originalSource(setting: boolean | null): ListenerConfig['originalSource'] {
  if (setting === null) return 'auto';
  return setting ? 'on' : 'off';
}

import {
  bool,
  bytes,
  duration,
  integer,
  makeField,
  oneOf,
  text,
} from '../../../lib/config/fields.ts';
import { drainVariables } from '../../../lib/config/drain.ts';
import { rootVariables } from '../../../lib/identity/mesh-roots.ts';
import { tlsVariables } from '../../../lib/tls/variables.ts';
import { formatAccessRules, parseAccessRules } from '../../../lib/log/access-rules.ts';
import { waypointVariables } from '../../../lib/state/waypoint-bypass.ts';
import { modeVariables } from './mode.ts';
import { parseProxyConfig } from './proxy-config.ts';
import { socketVariables } from './sockets.ts';
import { parseCpuQuantity, parseThreadSetting } from './worker-threads.ts';

const cpu = makeField(parseCpuQuantity);
const threads = makeField(parseThreadSetting);
const proxyConfig = makeField(parseProxyConfig);
const accessRules = makeField((value) => formatAccessRules(parseAccessRules(value)));
const optionalText = (description: string) => ({
  schema: text({ optional: true }),
  description,
});

/** HTTP/2 allows frames of 16 KiB to 16 MiB - 1, and windows up to 2^31 - 1. */
const MAX_WINDOW_BYTES = 2_147_483_647;

/** Variables of the node's place and of its trust roots. */
export const identityVariables = {
  NETWORK: { schema: text({ default: '' }), description: 'id of the network this node is on' },
  CLUSTER_DOMAIN: { schema: text({ default: 'cluster.local' }), description: 'DNS domain' },
  ...rootVariables,
} as const;

const count = integer({ min: 1, max: 10_000_000 });
const MIB = 1_048_576;

/** Limits of one process; refusals of each are counted apart (docs/decisions/budgets.md). */
const limitVariables = {
  WEFT_MAX_CONNECTIONS: {
    schema: count({ optional: true }),
    description:
      'connections of the process; default by its descriptors, two for each; one pod may have half of them on one thread',
    when: 'a node carries more connections than its descriptors allow, or has to leave descriptors to others',
  },
  WEFT_MAX_BYTES: {
    schema: bytes({ default: 256 * MIB }),
    description:
      'bytes held in memory for the connections of the process; beyond it, pods above an equal part of it take in less; a pod takes in less from an eighth of it on, and with a quarter of it no further tunnel',
    when: '`weft_listener_pressed_pods` stays above 0 while memory is free, or memory is scarce',
  },
} as const;

/** Variables of the data path. */
export const trafficVariables = {
  PACKET_MARK: {
    schema: integer({ min: 0, max: 0xffff_ffff })({ optional: true }),
    description:
      'mark on every socket, default 1337; in dedicated mode only on those to elsewhere, default none; 0 sets none',
  },
  ENABLE_ORIG_SRC: {
    schema: bool({ optional: true }),
    description: 'keep client addresses: true, false, or unset for what the kernel allows',
  },
  UNSTABLE_ENABLE_SOCKS5: {
    schema: bool({ default: false }),
    description: 'SOCKS5 on 127.0.0.1:15080 of each pod',
  },
  IPV6_ENABLED: { schema: bool({ default: true }), description: 'listen on IPv6 too' },
  INPOD_PORT_REUSE: {
    schema: bool({ default: true }),
    description: 'SO_REUSEPORT on the listeners in pods',
  },
  ...socketVariables,
  HTTP2_STREAM_WINDOW_SIZE: {
    schema: bytes({ default: 4_194_304 }).refine(isWindow, 'must be 65535 to 2147483647 bytes'),
    description: 'flow control window of a stream',
  },
  HTTP2_CONNECTION_WINDOW_SIZE: {
    schema: bytes({ default: 16_777_216 }).refine(isWindow, 'must be 65535 to 2147483647 bytes'),
    description: 'flow control window of a tunnel',
  },
  HTTP2_FRAME_SIZE: {
    schema: bytes({ default: 1_048_576 }).refine(
      (value) => value >= 16_384 && value <= 16_777_215,
      'must be 16384 to 16777215 bytes',
    ),
    description: 'largest frame accepted',
  },
  POOL_MAX_STREAMS_PER_CONNECTION: {
    schema: integer({ min: 1, max: 65_536 })({ default: 100 }),
    description: 'streams of one tunnel',
  },
  POOL_UNUSED_RELEASE_TIMEOUT: {
    schema: duration({ default: 300_000 }),
    description: 'an idle tunnel is closed after this time',
  },
  ENABLE_RESPONSE_BAGGAGE: {
    schema: bool({ default: true }),
    description: 'send response baggage and use request baggage',
  },
  LOCALHOST_APP_TUNNEL: {
    schema: bool({ default: true }),
    description: 'reach applications behind a PROXY tunnel over loopback',
  },
  ...tlsVariables,
  CRL_PATH: {
    schema: text({ optional: true }),
    description: 'file with the revocation lists for peers, PEM or DER; followed',
  },
  AUTHZ_POLICY_INFO_LOGGING: {
    schema: bool({ default: false }),
    description: 'policy decisions at level info',
  },
  WEFT_ACCESS_LOG: {
    schema: accessRules({ default: 'all' }),
    description:
      'access lines of connections that did not fail: all, errors (none) or a share; namespace=… for its pods: all,jobs=10%',
    when: 'access lines cost too much; failures are always written',
  },
  WEFT_SAME_NODE_FAST_PATH: {
    schema: bool({ default: false }),
    description:
      'connect two pods of this node without a tunnel, when the network of the node enforces no policy of its own',
    when: 'no NetworkPolicy has to see traffic inside a node',
  },
  ...limitVariables,
  WEFT_POLICY_UNKNOWN_REFERENCE: {
    schema: oneOf('deny', 'ignore')({ default: 'deny' }),
    description: 'effect of a listed policy that stays unknown for 5s',
    when: 'an istiod lists policies that it never sends (ignore)',
  },
  ...waypointVariables,
} as const;

/** Variables of the process: threads, sockets, servers, drain. */
export const processVariables = {
  ...modeVariables,
  POD_NAME: optionalText('pod of this process'),
  POD_NAMESPACE: optionalText('its namespace'),
  SERVICE_ACCOUNT: optionalText(
    'its account; with POD_NAME and POD_NAMESPACE it is served to the mesh on port 15008 of its own namespace',
  ),
  NODE_NAME: { schema: text({ optional: true }), description: 'node this process runs on' },
  PROXY_CONFIG: {
    schema: proxyConfig({ optional: true }),
    description: 'ProxyConfig in YAML: proxyAdminPort, statsPort, concurrency, proxyMetadata',
  },
  ZTUNNEL_WORKER_THREADS: {
    schema: threads({ optional: true }),
    description: 'listener threads: a number, p% of the cores, 0 for all',
  },
  ZTUNNEL_CPU_LIMIT: { schema: cpu({ optional: true }), description: 'CPU limit of the container' },
  ZTUNNEL_RESOURCE_CPU_LIMIT: {
    schema: cpu({ optional: true }),
    description: 'CPU limit of the container; goes before ZTUNNEL_CPU_LIMIT',
  },
  ZTUNNEL_RESOURCE_CPU_REQUEST: {
    schema: cpu({ optional: true }),
    description: 'CPU request of the container',
  },
  ...drainVariables,
  WEFT_NODE_PROXY_GROUP: {
    schema: integer({ min: 0 })({ default: 0 }),
    description: 'generation; the node agent hands new pods to the newest one',
    when: 'a launcher starts a new generation beside an old one',
  },
  WEFT_NODE_PROXY_HANDOVER: {
    schema: duration({ default: 0 }),
    description:
      'how long a proxy that was told to end goes on accepting while no other one listens for its pods',
    when: 'a container engine ends the old proxy before the new one listens',
  },
  ISTIO_META_ISTIO_VERSION: optionalText('tag of the istio_build metric; default unknown'),
} as const;

function isWindow(value: number): boolean {
  return value >= 65_535 && value <= MAX_WINDOW_BYTES;
}

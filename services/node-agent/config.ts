import { isIP } from 'node:net';
import { busConfig, busVariables } from '../../lib/bus/config.ts';
import type { BusConfig } from '../../lib/bus/config.ts';
import { defineConfig } from '../../lib/config/define-config.ts';
import { drainDeadlineMs, drainVariables } from '../../lib/config/drain.ts';
import { bool, list, makeField, oneOf, text } from '../../lib/config/fields.ts';
import { DEFAULT_SELECTORS } from './eligibility.ts';
import type { EligibilityRules } from './eligibility.ts';
import { enablementSelectors } from './enablement-selectors.ts';
import type { ConnectionSource } from '../../lib/kubernetes/connection.ts';
import { connectionSource, kubernetesVariables } from '../../lib/kubernetes/variables.ts';
import type { RedirectDefaults } from '../../lib/redirect/pod-options.ts';
import { DEFAULT_PROBE_ADDRESS } from '../../lib/redirect/rules.ts';
import { cniConfig, cniVariables } from './cni/config.ts';
import type { CniConfig } from './cni/config.ts';
import type { DepartureSource } from './kubernetes/departing.ts';

/** The settings of the node agent; times in milliseconds. */
export interface NodeAgentConfig {
  readonly bus: BusConfig;
  /** Where the pods come from. */
  readonly pods:
    | { readonly kind: 'directory'; readonly path: string }
    | { readonly kind: 'docker'; readonly socket: string }
    | { readonly kind: 'kubernetes'; readonly connection: ConnectionSource };
  readonly procDir: string;
  /** Socket of the container runtime; null where it is not asked. */
  readonly runtimeSocket: string | null;
  readonly rescanMs: number;
  readonly socketPath: string;
  readonly driftIntervalMs: number;
  readonly drainMs: number;
  readonly redirect: RedirectDefaults;
  readonly forceIptables: 'legacy' | 'nft' | null;
  readonly nativeNftables: boolean;
  /** Whether connections that a running pod has when it is enrolled go on outside the mesh. */
  readonly existing: 'keep' | 'reset';
  readonly eligibility: EligibilityRules;
  /** Null where no CNI plugin is wanted. */
  readonly cni: CniConfig | null;
  /** A mount of the node's files; null where the agent is not in a container. */
  readonly hostRoot: string | null;
  /** Where an agent that ends asks whether it leaves its node; null where it never does. */
  readonly departure: DepartureSource | null;
}

/** Time between two looks at rules and listeners: drift is found and repaired within 2 s. */
const DRIFT_INTERVAL_MS = 1_000;
/** Time between two scans of the pod directory without a reported change: the kernel may drop reports. */
const RESCAN_MS = 3_000;

const ipv4 = makeField((value) => checkedIp(value, 4));
const ipv6 = makeField((value) => checkedIp(value, 6));
const absolutePath = makeField((value) => {
  if (!value.startsWith('/')) throw new Error('must be an absolute path');
  return value;
});

/** The path of `unix:///path`, as crictl has it. */
const unixEndpoint = makeField((value) => {
  if (!value.startsWith('unix:///')) throw new Error('must be unix:///path');
  return value.slice('unix://'.length);
});

const variables = {
  ...busVariables,
  ...kubernetesVariables,
  WEFT_NODE_AGENT_PODS_DIR: {
    schema: absolutePath({ optional: true }),
    description: 'directory with one JSON record per pod of this node',
    when: 'always set with manifests: the runtime writes its records there',
  },
  DOCKER_HOST: {
    schema: unixEndpoint({ optional: true }),
    description:
      'socket of a Docker engine, unix:///path, whose containers labelled weft.io/pod are the pods; counts when WEFT_NODE_AGENT_PODS_DIR is unset',
    when: 'containers of a Docker host are to be in the mesh, without Compose and Kubernetes',
  },
  INPOD_UDS: {
    schema: text({ default: '/var/run/ztunnel/ztunnel.sock' }),
    description: 'socket on which node proxies are told of pods',
  },
  WEFT_NODE_AGENT_PROC_DIR: {
    schema: absolutePath({ default: '/proc' }),
    description:
      "a mount of the node's /proc: its processes lead to the pods' namespaces, and sys/net is written to",
    when: 'the agent runs in a container',
  },
  CONTAINER_RUNTIME_ENDPOINT: {
    schema: unixEndpoint({ optional: true }),
    description:
      "socket of the container runtime (CRI), unix:///path, which tells the namespaces of pods that the CNI plugin did not; the node's processes tell them when unset",
    when: 'the socket is mounted: one request finds a namespace for which all processes would be searched',
  },
  AMBIENT_IPV6: { schema: bool({ default: true }), description: 'write IPv6 rules too' },
  AMBIENT_DNS_CAPTURE: {
    schema: bool({ optional: true }),
    description: 'send DNS queries to the proxy; unset = the proxy answers none, no pod may ask',
  },
  HOST_PROBE_SNAT_IP: {
    schema: ipv4({ default: DEFAULT_PROBE_ADDRESS.v4 }),
    description: 'IPv4 source of probes by the node, exempt from redirection',
  },
  HOST_PROBE_SNAT_IPV6: {
    schema: ipv6({ default: DEFAULT_PROBE_ADDRESS.v6 }),
    description: 'IPv6 source of probes by the node, exempt from redirection',
  },
  FORCE_IPTABLES_BINARY: {
    schema: oneOf('legacy', 'nft')({ optional: true }),
    description: 'iptables programs to use; chosen by what works when unset',
  },
  NATIVE_NFTABLES: {
    schema: bool({ default: false }),
    description:
      'write tables of nftables instead of iptables rules; iptables is used where nft does not work',
    when: 'the node is to have no iptables',
  },
  WEFT_ENROL_EXISTING: {
    schema: oneOf('keep', 'reset')({ default: 'keep' }),
    description:
      'connections that a running pod has when it is enrolled, or has made while its redirection was missing and no agent ran: they go on outside the mesh, or are reset',
    when: 'no connection of a pod of the mesh may be in plaintext, and its applications connect again',
  },
  EXCLUDE_NAMESPACES: {
    schema: list({ default: ['kube-system'] }),
    description: 'namespaces whose pods are never enrolled',
  },
  AMBIENT_ENABLEMENT_SELECTOR: {
    schema: enablementSelectors({ default: DEFAULT_SELECTORS }),
    description:
      'YAML list of {podSelector, namespaceSelector}; a pod that one of them selects is enrolled, an empty selector selects everything',
  },
  ...cniVariables,
  ...drainVariables,
} as const;

/** Environment of the node agent; upstream's names where upstream has one (docs/spec/cni.md §1.2). */
export const nodeAgentConfig = defineConfig(variables, (values): NodeAgentConfig => ({
  bus: busConfig(values),
  pods: podsOf(values),
  procDir: values.WEFT_NODE_AGENT_PROC_DIR,
  runtimeSocket: values.CONTAINER_RUNTIME_ENDPOINT,
  rescanMs: RESCAN_MS,
  socketPath: values.INPOD_UDS,
  driftIntervalMs: DRIFT_INTERVAL_MS,
  drainMs: drainDeadlineMs(values),
  redirect: {
    ipv6: values.AMBIENT_IPV6,
    dnsCapture: values.AMBIENT_DNS_CAPTURE,
    probeAddress: { v4: values.HOST_PROBE_SNAT_IP, v6: values.HOST_PROBE_SNAT_IPV6 },
  },
  forceIptables: values.FORCE_IPTABLES_BINARY,
  nativeNftables: nativeNftables(values),
  existing: values.WEFT_ENROL_EXISTING,
  eligibility: {
    excludedNamespaces: values.EXCLUDE_NAMESPACES,
    selectors: values.AMBIENT_ENABLEMENT_SELECTOR,
  },
  cni: cniConfig(values),
  hostRoot: values.WEFT_NODE_AGENT_HOST_ROOT || null,
  departure: departureSource(values),
}));

function nativeNftables(values: {
  readonly NATIVE_NFTABLES: boolean;
  readonly FORCE_IPTABLES_BINARY: string | null;
}): boolean {
  if (values.NATIVE_NFTABLES && values.FORCE_IPTABLES_BINARY !== null) {
    throw new Error(
      'FORCE_IPTABLES_BINARY cannot be set with NATIVE_NFTABLES=true: it names iptables programs',
    );
  }
  return values.NATIVE_NFTABLES;
}

/** Only a DaemonSet ends for good; its pods know their namespace and an API server. */
function departureSource(
  values: Parameters<typeof connectionSource>[0] & {
    readonly WEFT_SOURCE: string;
    readonly POD_NAMESPACE: string | null;
  },
): DepartureSource | null {
  const { WEFT_SOURCE: source, POD_NAMESPACE: namespace } = values;
  const connection = connectionSource(values);
  const { kubeconfig, serviceHost } = connection;
  const server = source === 'kubernetes' || kubeconfig !== null || serviceHost !== null;
  return server && namespace !== null ? { connection, namespace } : null;
}

function podsOf(
  values: Parameters<typeof connectionSource>[0] & {
    readonly WEFT_SOURCE: string;
    readonly WEFT_NODE_AGENT_PODS_DIR: string | null;
    readonly DOCKER_HOST: string | null;
  },
): NodeAgentConfig['pods'] {
  const { WEFT_NODE_AGENT_PODS_DIR: path, DOCKER_HOST: socket } = values;
  if (values.WEFT_SOURCE === 'kubernetes') {
    if (path === null) return { kind: 'kubernetes', connection: connectionSource(values) };
    throw new Error(
      'WEFT_NODE_AGENT_PODS_DIR cannot be set with WEFT_SOURCE=kubernetes: the API server has the pods',
    );
  }
  // The user's own shell may name an engine, so that it is no contradiction.
  if (path !== null) return { kind: 'directory', path };
  if (socket !== null) return { kind: 'docker', socket };
  throw new Error(
    'WEFT_NODE_AGENT_PODS_DIR is required: the pods must come from somewhere, or set DOCKER_HOST or WEFT_SOURCE=kubernetes',
  );
}

function checkedIp(value: string, family: 4 | 6): string {
  if (isIP(value) !== family) throw new Error(`must be an IPv${family} address`);
  return value;
}

/** Settings of the CNI plugin and its installation; upstream's names where upstream has one (docs/spec/cni.md §1.2). */
import { join } from 'node:path';
import { bool, makeField, oneOf, text } from '../../../lib/config/fields.ts';
import type { ConfigValues } from '../../../lib/config/define-config.ts';
import { connectionSource, kubernetesVariables } from '../../../lib/kubernetes/variables.ts';
import type { ConnectionSource } from '../../../lib/kubernetes/connection.ts';
import type { EligibilityRules } from '../eligibility.ts';
import { AGENT_DAEMON_SET } from '../kubernetes/departure.ts';
import { PLUGIN } from './conflist.ts';

/** The plugin's settings. */
export interface CniConfig {
  readonly hostRoot: string;
  readonly netDir: string;
  readonly binDir: string;
  readonly runDir: string;
  readonly ownList: string | null;
  readonly primary: string | null;
  readonly listMode: number;
  readonly kubeconfigMode: number;
  readonly onUnknown: 'deny' | 'allow';
  /** The namespace of Weft's own pods; null outside of Kubernetes. */
  readonly namespace: string | null;
  readonly connection: ConnectionSource;
}

/** A folder without the slash at its end, so that paths of the host can follow it. */
const folder = makeField((value) => {
  if (!value.startsWith('/')) throw new Error('must be an absolute path');
  return value.replace(/\/+$/, '');
});
const fileName = makeField((value) => {
  if (!/^[^/]+\.(?:conf|conflist|json)$/.test(value)) {
    throw new Error('must be the name of a .conf, .conflist or .json file');
  }
  return value;
});
const ownFileName = makeField((value) => {
  if (!/^[^/]+\.conflist$/.test(value)) throw new Error('must be the name of a .conflist file');
  return value;
});
const fileMode = makeField(
  (value) => {
    if (!/^0?[0-7]{3}$/.test(value)) throw new Error('must be a file mode such as 0600');
    return Number.parseInt(value, 8);
  },
  (mode) => `0${mode.toString(8)}`,
);
/** Weft's DaemonSets in POD_NAMESPACE. Their pods start without the agent, which may need them. */
const OWN_DAEMON_SETS = [
  AGENT_DAEMON_SET,
  'weft-node-proxy',
  'weft-cert-fetcher',
  'weft-redis',
  'weft-xds-ingester',
  'weft-policy-evaluator',
];

export const cniVariables = {
  WEFT_NODE_AGENT_CNI: {
    schema: bool({ default: false }),
    description: 'install the CNI plugin on the node, and answer it',
    when: 'a container runtime starts the pods, as on Kubernetes',
  },
  WEFT_NODE_AGENT_HOST_ROOT: {
    schema: folder({ default: '' }),
    description: "where the host's files are mounted",
    when: 'the agent runs in a container',
  },
  MOUNTED_CNI_NET_DIR: {
    schema: folder({ optional: true }),
    description:
      "folder of the runtime's CNI configuration, as the agent sees it; default etc/cni/net.d below WEFT_NODE_AGENT_HOST_ROOT",
  },
  WEFT_NODE_AGENT_CNI_BIN_DIR: {
    schema: folder({ default: '/opt/cni/bin' }),
    description: "folder of the host's CNI plugins",
    when: 'the runtime looks elsewhere (GKE: /home/kubernetes/bin)',
  },
  CNI_AGENT_RUN_DIR: {
    schema: folder({ default: '/var/run/istio-cni' }),
    description: "folder of the plugin's socket and kubeconfig; the same path on the host",
  },
  CNI_CONF_NAME: {
    schema: fileName({ optional: true }),
    description: "file of the primary CNI plugin; the runtime's first one when unset",
  },
  ISTIO_OWNED_CNI_CONFIG: {
    schema: bool({ default: true }),
    description:
      "write a list of one's own that sorts first; false: add the plugin to the primary's file",
  },
  ISTIO_OWNED_CNI_CONFIG_FILENAME: {
    schema: ownFileName({ default: '02-weft-cni.conflist' }),
    description: 'name of that list',
  },
  CNI_CONF_GROUP_READ: {
    schema: bool({ default: false }),
    description: 'let the group read that list (mode 0640 instead of 0600)',
  },
  KUBECONFIG_MODE: {
    schema: fileMode({ default: 0o600 }),
    description: "file mode of the plugin's kubeconfig",
  },
  WEFT_CNI_ON_UNKNOWN: {
    schema: oneOf('deny', 'allow')({ default: 'deny' }),
    description:
      'whether pods start that nobody can judge, because neither the agent nor the API server answers',
    when: 'pods outside the mesh must start while both are away, and pods of the mesh may then start unprotected',
  },
  POD_NAMESPACE: {
    schema: text({ optional: true }),
    description: 'namespace of the actor itself',
  },
  KUBECONFIG: kubernetesVariables.KUBECONFIG,
  KUBERNETES_SERVICE_HOST: kubernetesVariables.KUBERNETES_SERVICE_HOST,
  KUBERNETES_SERVICE_PORT: kubernetesVariables.KUBERNETES_SERVICE_PORT,
} as const;

/** Returns the settings; null where no plugin is wanted. */
export function cniConfig(values: ConfigValues<typeof cniVariables>): CniConfig | null {
  if (!values.WEFT_NODE_AGENT_CNI) return null;
  const hostRoot = values.WEFT_NODE_AGENT_HOST_ROOT;
  return {
    hostRoot,
    netDir: values.MOUNTED_CNI_NET_DIR ?? join(hostRoot, '/etc/cni/net.d'),
    binDir: join(hostRoot, values.WEFT_NODE_AGENT_CNI_BIN_DIR),
    runDir: values.CNI_AGENT_RUN_DIR,
    ownList: values.ISTIO_OWNED_CNI_CONFIG ? values.ISTIO_OWNED_CNI_CONFIG_FILENAME : null,
    primary: values.CNI_CONF_NAME,
    listMode: values.CNI_CONF_GROUP_READ ? 0o640 : 0o600,
    kubeconfigMode: values.KUBECONFIG_MODE,
    onUnknown: values.WEFT_CNI_ON_UNKNOWN,
    namespace: values.POD_NAMESPACE,
    connection: connectionSource(values),
  };
}

/** Returns the plugin's entry in a list (plugin/request.cc and helper.ts read it). */
export function pluginEntry(
  config: CniConfig,
  rules: EligibilityRules,
): Readonly<Record<string, unknown>> {
  return {
    type: PLUGIN,
    cni_agent_run_dir: config.runDir,
    exclude_namespaces: rules.excludedNamespaces,
    enablement_selectors: rules.selectors,
    ...(config.namespace === null
      ? {}
      : { pod_namespace: config.namespace, own_daemonsets: OWN_DAEMON_SETS }),
    on_unknown: config.onUnknown,
  };
}

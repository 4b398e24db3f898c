import { busConfig, busVariables } from '../../lib/bus/config.ts';
import type { BusConfig } from '../../lib/bus/config.ts';
import { configInvalid, deepFreeze, defineConfig } from '../../lib/config/define-config.ts';
import type { Environment } from '../../lib/config/env.ts';
import { bool, duration, text } from '../../lib/config/fields.ts';
import type { ConfigSpec } from '../../lib/config/spec.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { defaultServer } from '../../lib/identity/ca-config.ts';
import { clusterId, clusterVariables } from '../../lib/identity/cluster.ts';
import { tlsPolicy, tlsVariables } from '../../lib/tls/variables.ts';
import type { TlsPolicy } from '../../lib/tls/parameters.ts';
import { headersFromEnvironment, parseServerAddress } from '../../lib/grpc/client.ts';
import type { XdsNodeOptions } from '../../lib/xds/node.ts';

/** The control plane to follow. */
export interface XdsServerConfig {
  readonly address: string;
  readonly rootCa: string;
  readonly altHostname: string | null;
  readonly authToken: string | null;
  readonly clusterId: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsPolicy;
}

/** Configuration of the ingester. */
export interface IngesterConfig {
  readonly bus: BusConfig;
  /** Null when XDS_ADDRESS is set and empty: only the local file is published. */
  readonly xds: XdsServerConfig | null;
  readonly node: XdsNodeOptions;
  /** Path of the local file, or its text. */
  readonly local: { readonly path: string } | { readonly text: string } | null;
  /** Address resources are followed by the names that node-proxies ask for. */
  readonly onDemand: boolean;
  /** How long large removals are held, in milliseconds; 0: not at all. */
  readonly holdRemovalsMs: number;
}

/** A restarted control plane that serves half of its cluster has read the rest within this time. */
const HOLD_REMOVALS_MS = 60_000;

const DEFAULT_ROOT_CA = './var/run/secrets/istio/root-cert.pem';

const base = defineConfig(
  {
    ...busVariables,
    ...tlsVariables,
    XDS_ADDRESS: {
      schema: text({ optional: true }),
      description:
        'control plane, https://host:port; default istiod of the cluster, else localhost:15012; set and empty for none',
    },
    XDS_ROOT_CA: {
      schema: text({ default: DEFAULT_ROOT_CA }),
      description: 'roots of the control plane: a path (read on each connection), SYSTEM, or PEM',
    },
    ALT_XDS_HOSTNAME: {
      schema: text({ optional: true }),
      description: 'another name the certificate of the control plane may have',
    },
    AUTH_TOKEN: {
      schema: text({ optional: true }),
      description: 'token for the control plane: a path (read for each stream) or the token',
    },
    ...clusterVariables,
    POD_NAME: { schema: text({ default: 'xds-ingester' }), description: 'name of this pod' },
    POD_NAMESPACE: {
      schema: text({ default: 'istio-system' }),
      description: 'namespace of this pod',
    },
    INSTANCE_IP: { schema: text({ default: '1.1.1.1' }), description: 'address of this pod' },
    NODE_NAME: { schema: text({ default: '' }), description: 'node this process runs on' },
    XDS_ON_DEMAND: {
      schema: bool({ default: false }),
      description:
        'follow only the addresses that connections of pods need (docs/decisions/on-demand.md); set it for node-proxy too',
      when: 'the mesh is much larger than the part that the nodes of this Redis talk to',
    },
    WEFT_HOLD_REMOVALS: {
      schema: duration({ default: HOLD_REMOVALS_MS }),
      description:
        'how long the control plane must stand by a push that removes more than 30 % of the workloads and at least 50; 0s applies every push at once',
      when: 'large parts of the mesh come and go at once (shorter), or the control plane takes longer to read its cluster after a restart (longer)',
    },
    LOCAL_XDS_PATH: {
      schema: text({ optional: true }),
      description: 'file with workloads, services and policies, read at start',
    },
    LOCAL_XDS: {
      schema: text({ optional: true }),
      description: 'the same as a text instead of a file',
    },
  },
  (values) => values,
);

/** Configuration from the environment, with XDS_HEADER_*, ISTIO_META_* and ISTIO_METAJSON_* as upstream reads them. */
export const ingesterConfig: ConfigSpec<IngesterConfig> = {
  variables: base.variables,
  parse(environment) {
    const values = base.parse(environment);
    const problems: string[] = [];
    const attempt = <T>(read: () => T, otherwise: T): T => {
      try {
        return read();
      } catch (error) {
        if (!(error instanceof MeshError) || error.code !== 'CONFIG_INVALID') throw error;
        problems.push(error.message);
        return otherwise;
      }
    };
    if (values.LOCAL_XDS_PATH !== null && values.LOCAL_XDS !== null) {
      problems.push('LOCAL_XDS_PATH and LOCAL_XDS must not both be set');
    }
    const address = xdsAddress(environment);
    if (values.XDS_ON_DEMAND && address === null) {
      problems.push('XDS_ON_DEMAND needs a control plane, but XDS_ADDRESS is empty');
    }
    if (address !== null) {
      attempt(() => void parseServerAddress(address), undefined);
    }
    const headers = attempt(() => headersFromEnvironment(environment, 'XDS_HEADER_'), {});
    const jsonMetadata = attempt(() => jsonEntries(environment), {});
    const tls = tlsPolicy(values);
    if (problems.length > 0) throw configInvalid(problems);
    const xds = address === null ? null : { ...serverValues(values), address, headers, tls };
    return deepFreeze<IngesterConfig>({
      bus: busConfig(values),
      xds,
      node: {
        instanceIp: values.INSTANCE_IP,
        podName: values.POD_NAME,
        podNamespace: values.POD_NAMESPACE,
        nodeName: values.NODE_NAME,
        metadata: prefixed(environment, 'ISTIO_META_'),
        jsonMetadata,
      },
      onDemand: values.XDS_ON_DEMAND,
      local: localSource(values.LOCAL_XDS_PATH, values.LOCAL_XDS),
      holdRemovalsMs: values.WEFT_HOLD_REMOVALS,
    });
  },
};

function serverValues(
  values: ReturnType<typeof base.parse>,
): Omit<XdsServerConfig, 'address' | 'headers' | 'tls'> {
  return {
    rootCa: values.XDS_ROOT_CA,
    altHostname: values.ALT_XDS_HOSTNAME,
    authToken: values.AUTH_TOKEN,
    clusterId: clusterId(values),
  };
}

/** Reads XDS_ADDRESS from the environment, because empty and absent differ (docs/spec/control.md §1) and the parsed value equates them. */
function xdsAddress(environment: Environment): string | null {
  const address = environment['XDS_ADDRESS'];
  if (address === '') return null;
  return address ?? defaultServer(environment['KUBERNETES_SERVICE_HOST']);
}

function prefixed(environment: Environment, prefix: string): Record<string, string> {
  const entries: Record<string, string> = {};
  for (const [name, value] of Object.entries(environment)) {
    if (name.startsWith(prefix) && value !== undefined) entries[name.slice(prefix.length)] = value;
  }
  return entries;
}

function jsonEntries(environment: Environment): Record<string, unknown> {
  const entries: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(prefixed(environment, 'ISTIO_METAJSON_'))) {
    try {
      entries[name] = JSON.parse(value);
    } catch (error) {
      throw configInvalid([`ISTIO_METAJSON_${name} is not JSON: ${errorText(error)}`]);
    }
  }
  return entries;
}

function localSource(path: string | null, inline: string | null): IngesterConfig['local'] {
  if (path !== null) return { path };
  return inline === null ? null : { text: inline };
}

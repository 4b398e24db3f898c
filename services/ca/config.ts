import { isIP } from 'node:net';
import { defineConfig } from '../../lib/config/define-config.ts';
import { accounts, duration, endpoint, makeField, text } from '../../lib/config/fields.ts';
import type { Endpoint } from '../../lib/config/fields.ts';
import type { ConnectionSource } from '../../lib/kubernetes/connection.ts';
import {
  checkSourceSettings,
  connectionSource,
  kubernetesVariables,
} from '../../lib/kubernetes/variables.ts';
import type { AltName } from '../../lib/identity/subject-alt-name.ts';
import { tlsPolicy, tlsVariables } from '../../lib/tls/variables.ts';
import type { TlsPolicy } from '../../lib/tls/parameters.ts';
import { meshConfigVariables } from '../../lib/mesh-config/variables.ts';
import { tokenVariables } from '../../lib/identity/token-config.ts';
import type { TokenVerifierOptions } from '../../lib/identity/token.ts';
import { ROTATION_SETTLE_MS } from './limits.ts';

/** The CA's configuration; times in milliseconds. */
export interface CaConfig {
  /** Where pods, tokens' keys and the CA's state come from. */
  readonly source: 'manifests' | 'kubernetes';
  readonly kubernetes: ConnectionSource;
  /** The namespace of the CA's Secrets and its lease; null for that of its service account. */
  readonly namespace: string | null;
  readonly listen: Endpoint;
  readonly tls: TlsPolicy;
  /** The trust domain where the MeshConfig names none. */
  readonly trustDomain: string;
  /** File with the MeshConfig; null takes the ConfigMap, on Kubernetes. */
  readonly meshConfig: string | null;
  readonly stateDir: string;
  readonly rootBundleFile: string | null;
  /** Folder of another authority's signing certificate; null = the CA's own root. */
  readonly pluggedDir: string | null;
  readonly podsSocket: string | null;
  readonly servingHosts: readonly AltName[];
  readonly servingNames: Readonly<Record<string, readonly AltName[]>>;
  readonly trustedNodeAccounts: readonly string[];
  readonly defaultLifetimeMs: number;
  readonly maxLifetimeMs: number;
  /** Time in which a step of a rotation reaches all CA processes and all nodes. */
  readonly settleMs: number;
  readonly token: Omit<TokenVerifierOptions, 'jwksPath'> & {
    /** Null where the API server verifies tokens. */
    readonly jwksPath: string | null;
  };
}

/** Parses a host name or an address. Throws an Error for anything else. */
function parseServerName(value: string): AltName {
  if (isIP(value) !== 0) return { kind: 'ip', value };
  if (!/^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/.test(value)) {
    throw new Error(`${JSON.stringify(value)} is neither a host name nor an address`);
  }
  return { kind: 'dns', value };
}

/** Parses `namespace/account=name,name;…`. Throws an Error with the reason. */
function parseServingNames(value: string): Readonly<Record<string, readonly AltName[]>> {
  const result: Record<string, readonly AltName[]> = {};
  for (const entry of value.split(';').map((part) => part.trim())) {
    if (entry === '') continue;
    const match = /^([^/=\s]+\/[^/=\s]+)=(\S+)$/.exec(entry);
    if (match?.[1] === undefined || match[2] === undefined) {
      throw new Error('must be namespace/account=name,name;namespace/account=…');
    }
    result[match[1]] = match[2].split(',').map(parseServerName);
  }
  return result;
}

const servingNames = makeField(parseServingNames, (names) =>
  Object.entries(names)
    .map(([account, hosts]) => `${account}=${hosts.map((host) => host.value).join(',')}`)
    .join(';'),
);
const serverNames = makeField(
  (value): readonly AltName[] => value.split(',').map(parseServerName),
  (names) => names.map((name) => name.value).join(','),
);
/** Settings of the manifest source only. */
const OF_MANIFESTS = ['WEFT_TOKEN_JWKS_PATH', 'TOKEN_ISSUER', 'WEFT_PODS_SOCKET'] as const;

const HOUR_MS = 3_600_000;

/** The CA's variables; Istio's names where Istio has one (docs/spec/istiod-ambient.md §4). */
export const caConfig = defineConfig(
  {
    ...kubernetesVariables,
    POD_NAMESPACE: {
      schema: text({ optional: true }),
      description:
        "namespace of the CA's Secrets and lease on Kubernetes; that of its service account when unset",
    },
    WEFT_LISTEN: {
      schema: endpoint({ default: { kind: 'tcp', host: '::', port: 15_012 } }),
      description: 'where to listen; [::] takes IPv4 too',
      when: '15012 is taken, or only one address may be reached',
    },
    ...tlsVariables,
    TRUST_DOMAIN: {
      schema: text({ default: 'cluster.local' }),
      description: 'trust domain of all issued identities, where the MeshConfig names none',
    },
    ...meshConfigVariables,
    WEFT_STATE_DIR: {
      schema: text({ default: '/var/lib/weft/ca' }),
      description: 'folder of the root key and of the last known pods',
      when: 'state lies on another volume',
    },
    WEFT_CA_ROOT_BUNDLE_FILE: {
      schema: text({ optional: true }),
      description: 'file to write the trust bundle to',
      when: 'proxies read the roots from a shared folder',
    },
    ROOT_CA_DIR: {
      schema: text({ optional: true }),
      description:
        'folder with ca-cert.pem, ca-key.pem, root-cert.pem, cert-chain.pem to sign with instead of an own root',
    },
    WEFT_PODS_SOCKET: {
      schema: text({ optional: true }),
      description:
        'unix socket of the control plane that serves the pods; without it nodes get no certificates',
      when: 'always set if nodes request certificates for their pods',
    },
    ISTIOD_CUSTOM_HOST: {
      schema: serverNames({ default: [{ kind: 'dns', value: 'localhost' }] }),
      description: "names and addresses in the CA's own certificate, comma-separated",
    },
    WEFT_CA_SERVING_NAMES: {
      schema: servingNames({ default: {} }),
      description: 'server names granted to accounts: namespace/account=name,name;…',
      when: 'a control plane takes its serving certificate from this CA',
    },
    CA_TRUSTED_NODE_ACCOUNTS: {
      schema: accounts({ default: ['istio-system/ztunnel'] }),
      description:
        'accounts that may request the identities of pods on their node, comma-separated',
    },
    DEFAULT_WORKLOAD_CERT_TTL: {
      schema: duration({ default: 24 * HOUR_MS }),
      description: 'life of a certificate when the request names none',
    },
    MAX_WORKLOAD_CERT_TTL: {
      schema: duration({ default: 90 * 24 * HOUR_MS }),
      description: 'longest life that a request may name',
    },
    ...tokenVariables,
  },
  (values): CaConfig => {
    checkSourceSettings(values, OF_MANIFESTS, 'the API server reviews tokens and has all pods');
    if (values.DEFAULT_WORKLOAD_CERT_TTL > values.MAX_WORKLOAD_CERT_TTL) {
      throw new Error('DEFAULT_WORKLOAD_CERT_TTL is longer than MAX_WORKLOAD_CERT_TTL');
    }
    return {
      source: values.WEFT_SOURCE,
      kubernetes: connectionSource(values),
      namespace: values.POD_NAMESPACE,
      listen: values.WEFT_LISTEN,
      tls: tlsPolicy(values),
      trustDomain: values.TRUST_DOMAIN,
      meshConfig: values.WEFT_MESH_CONFIG,
      stateDir: values.WEFT_STATE_DIR,
      rootBundleFile: values.WEFT_CA_ROOT_BUNDLE_FILE,
      pluggedDir: values.ROOT_CA_DIR,
      podsSocket: values.WEFT_PODS_SOCKET,
      servingHosts: values.ISTIOD_CUSTOM_HOST,
      servingNames: values.WEFT_CA_SERVING_NAMES,
      trustedNodeAccounts: values.CA_TRUSTED_NODE_ACCOUNTS,
      defaultLifetimeMs: values.DEFAULT_WORKLOAD_CERT_TTL,
      maxLifetimeMs: values.MAX_WORKLOAD_CERT_TTL,
      settleMs: ROTATION_SETTLE_MS,
      token: {
        jwksPath: values.WEFT_TOKEN_JWKS_PATH,
        audiences: values.TOKEN_AUDIENCES,
        issuer: values.TOKEN_ISSUER,
      },
    };
  },
);

/** States of the whole mesh under which both control planes are compared. */
import type { Cluster } from '../../kubernetes/support/cluster.ts';
import { ROOT_NAMESPACE } from '../support/istiod.ts';
import { canonicalResource } from './canonical.ts';
import type { Fields } from './canonical.ts';
import { changed, podsWith } from './comparison.ts';
import type { Comparison, Objects, Resources } from './comparison.ts';
import { entryComparisons } from './entries.ts';
import { podComparisons } from './pods.ts';
import { authentication, policy, policyComparisons } from './policies.ts';
import { serviceComparisons } from './services.ts';
import { waypointComparisons } from './waypoints.ts';

/** A state of the mesh. */
export interface MeshState {
  readonly title: string;
  /** Rows of the specification that the state itself compares. */
  readonly rows: readonly string[];
  /** Objects that concern the whole mesh. */
  readonly objects: Objects;
  /** Settings of both control planes. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Namespaces with objects that concern the whole mesh, beside the root namespace. */
  readonly namespaces?: readonly string[];
  /** The comparisons that are made under it. */
  readonly comparisons: readonly Comparison[];
  /** A part of the root namespace's resources that only this state shows. */
  readonly shows?: RegExp;
  /** Turns istiod's resources in the root namespace into Weft's, where a difference is listed. */
  deviation?(resources: Resources): Resources;
  /** Removes the objects that other states must not see. */
  undo?(cluster: Cluster): Promise<unknown>;
}

const ordinary = [
  ...podComparisons,
  ...serviceComparisons,
  ...entryComparisons,
  ...waypointComparisons,
];

const rootNamespace = (labels: string): string => `
apiVersion: v1
kind: Namespace
metadata: { name: ${ROOT_NAMESPACE}, labels: { ${labels} } }
`;

const remoteGateway = (name: string, network: string, address: string): string => `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: ${name}
  namespace: ${ROOT_NAMESPACE}
  labels: { topology.istio.io/network: ${network} }
  annotations: { gateway.istio.io/service-account: gateway-of-${network} }
spec:
  gatewayClassName: istio-remote
  addresses: [${address}]
  listeners: [{ name: cross-network, port: 15009, protocol: HBONE, tls: { mode: Passthrough } }]
---
`;

const HBONE = 1;

/** istiod tells neither how a gateway is reached nor its cluster. */
function reachableGateways(resources: Resources): Resources {
  return changed(resources, '/15009', (gateway) => ({
    ...gateway,
    tunnelProtocol: HBONE,
    clusterId: 'Kubernetes',
  }));
}

const MESH_PEER = {
  apiVersion: 'security.istio.io/v1',
  kind: 'PeerAuthentication',
  metadata: { name: 'default', namespace: ROOT_NAMESPACE },
} as const;

const OPTIONS = {
  PILOT_AUTO_ALLOW_WAYPOINT_POLICY: 'true',
  AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY: 'true',
};

const OTHER_ROOT_NAMESPACE = 'root-of-mesh-config';

const OTHER_ROOT = `
apiVersion: v1
kind: Namespace
metadata: { name: ${OTHER_ROOT_NAMESPACE} }
`;

const MESH_CONFIG = `
apiVersion: v1
kind: ConfigMap
metadata: { name: istio, namespace: ${ROOT_NAMESPACE} }
data:
  mesh: |
    trustDomain: rows.example
    trustDomainAliases: [old.example]
    rootNamespace: ${OTHER_ROOT_NAMESPACE}
    discoverySelectors:
    - matchExpressions: [{ key: weft.test/hidden, operator: DoesNotExist }]
    serviceScopeConfigs:
    - servicesSelector: { matchLabels: { app: web } }
      scope: GLOBAL
    serviceEntryVisibility:
      defaultVisibility: PUBLIC
      policies:
      - visibility: NAMESPACE
        matchingRules: [{ namespaceSelector: { matchLabels: { weft.test/sees: own } } }]
      - visibility: NONE
        matchingRules: [{ namespaceSelector: { matchLabels: { weft.test/sees: nobody } } }]
`;

const visible = (ns: string, second: string): string => `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: entry, namespace: ${ns}, labels: { istio.io/use-waypoint: open, istio.io/use-waypoint-namespace: ${second} } }
spec:
  hosts: [entry.${ns}.example.com]
  addresses: [192.0.2.90]
  resolution: STATIC
  ports: [{ number: 443, name: tls, protocol: TLS }]
  endpoints: [{ address: 192.0.2.91 }]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: open, namespace: ${second} }
spec:
  gatewayClassName: by-hand
  listeners: [{ name: mesh, port: 15008, protocol: HBONE, allowedRoutes: { namespaces: { from: All } } }]
status: { addresses: [{ type: IPAddress, value: 192.0.2.92 }] }
`;

/** The effects of a MeshConfig (docs/spec/istiod-ambient.md §1.7). */
const configured: readonly Comparison[] = [
  {
    title: 'a namespace that discovery leaves out',
    rows: ['1.7.4'],
    labels: { 'weft.test/hidden': 'yes' },
    objects: (ns) => [...podsWith(ns, { web: {} }), policy(ns, 'hidden', '{ rules: [{}] }')],
  },
  {
    title: 'service entries that their own namespace sees',
    rows: ['1.5.a', '1.7.6'],
    labels: { 'weft.test/sees': 'own' },
    second: {},
    objects: (ns, second) => [visible(ns, second)],
  },
  {
    title: 'service entries that nobody sees',
    conditions: (written, isSecond) =>
      isSecond
        ? written
        : { ...written, 'ServiceEntry/entry istio.io/VisibilityApplied': 'True None' },
    rows: ['1.7.6'],
    labels: { 'weft.test/sees': 'nobody' },
    second: {},
    objects: (ns, second) => [visible(ns, second)],
  },
  {
    title: 'principals of the trust domain and its aliases',
    rows: ['1.7.2'],
    objects: (ns) => [
      policy(
        ns,
        'foreign',
        '{ rules: [{ from: [{ source: { principals: ["other.example/ns/a/sa/b", "*"] } }] }] }',
      ) +
        policy(
          ns,
          'alias',
          '{ rules: [{ from: [{ source: { principals: ["old.example/ns/a/sa/b"] } }] }] }',
        ),
    ],
    deviation: (resources) =>
      changed(resources, '/alias', (found) => ({
        ...found,
        rules: [
          [
            [
              {
                principals: ['old', 'rows'].map((domain) => ({
                  exact: `${domain}.example/ns/a/sa/b`,
                })),
              },
            ],
          ],
        ],
      })),
  },
];

const PREFIX = 'converted_peer_authentication_';

/** The policy of a PeerAuthentication that istiod loses, although workloads list it. */
function portPolicy(resources: Resources, of: string, ports: Fields): Resources {
  const namespace = String(Object.values(resources)[0]?.['namespace']);
  const name = `${PREFIX}${of}`;
  const matches = [{ notPrincipals: [{ presence: {} }] }, ports];
  const policy = canonicalResource({
    action: 1,
    extensions: [],
    name,
    namespace,
    rules: [{ clauses: matches.map((match) => ({ matches: [match] })) }],
    scope: 2,
  });
  return { [`${namespace}/${name}`]: policy };
}

/** Peer authentication below a mesh that demands mutual TLS. */
const strict: readonly Comparison[] = [
  {
    title: 'peer authentication of ports below a strict mesh',
    rows: ['2.3.a', '2.3.2', '2.3.5'],
    objects: (ns) => [
      ...podsWith(ns, {
        plain: {},
        open: { app: 'open' },
        excepted: { app: 'excepted' },
        disabled: { app: 'disabled' },
        port: { app: 'port' },
      }),
      authentication(
        ns,
        'open',
        '{ selector: { matchLabels: { app: open } }, mtls: { mode: PERMISSIVE } }',
      ) +
        authentication(
          ns,
          'excepted',
          '{ selector: { matchLabels: { app: excepted } }, portLevelMtls: { "80": { mode: PERMISSIVE }, "81": { mode: STRICT } } }',
        ) +
        authentication(
          ns,
          'disabled',
          '{ selector: { matchLabels: { app: disabled } }, portLevelMtls: { "80": { mode: DISABLE } } }',
        ) +
        authentication(
          ns,
          'port',
          '{ selector: { matchLabels: { app: port } }, mtls: { mode: PERMISSIVE }, portLevelMtls: { "80": { mode: STRICT } } }',
        ),
    ],
    deviation: (resources) => ({
      ...changed(resources, '/disabled', (pod) => ({
        ...pod,
        authorizationPolicies: [`${String(pod['namespace'])}/${PREFIX}disabled`],
      })),
      ...portPolicy(resources, 'port', { destinationPorts: [80] }),
    }),
  },
  {
    title: 'peer authentication of ports below a namespace that says nothing',
    rows: ['2.3.5'],
    objects: (ns) => [
      ...podsWith(ns, { plain: {}, excepted: { app: 'excepted' } }),
      authentication(ns, 'default', '{ mtls: { mode: UNSET } }') +
        authentication(
          ns,
          'excepted',
          '{ selector: { matchLabels: { app: excepted } }, portLevelMtls: { "80": { mode: PERMISSIVE } } }',
        ),
    ],
    deviation: (resources) => ({
      ...resources,
      ...portPolicy(resources, 'excepted', { notDestinationPorts: [80] }),
    }),
  },
];

/** The states, one after another. */
export const meshStates: readonly MeshState[] = [
  {
    title: 'objects of namespaces',
    rows: [],
    objects: [],
    comparisons: [...ordinary, ...policyComparisons],
  },
  {
    title: 'a network, gateways of others, and policies for the whole mesh',
    rows: ['1.1.4', '1.3.5', '2.1.4', '2.4.a'],
    objects: [
      rootNamespace('topology.istio.io/network: local'),
      remoteGateway('by-address', 'n1', '{ type: IPAddress, value: 192.0.2.250 }') +
        remoteGateway('by-name', 'elsewhere', '{ type: Hostname, value: gateway.example.com }'),
      policy(
        ROOT_NAMESPACE,
        'everyone',
        '{ rules: [{ from: [{ source: { namespaces: [a] } }] }] }',
      ) +
        policy(
          ROOT_NAMESPACE,
          'every-web',
          '{ action: DENY, selector: { matchLabels: { app: web } }, rules: [{}] }',
        ) +
        authentication(
          ROOT_NAMESPACE,
          'ignored',
          '{ selector: { matchLabels: { app: web } }, mtls: { mode: STRICT } }',
        ),
    ],
    comparisons: [...ordinary, ...policyComparisons],
    shows: /NetworkGateway.*"everyone"/s,
    deviation: reachableGateways,
  },
  {
    title: 'a mesh that demands mutual TLS',
    rows: ['2.3.a', '2.3.1'],
    objects: [authentication(ROOT_NAMESPACE, 'default', '{ mtls: { mode: STRICT } }')],
    comparisons: [...strict, ...podComparisons],
    shows: /istio_converted_static_strict/,
    deviation: reachableGateways,
    undo: (cluster) => cluster.delete(MESH_PEER),
  },
  {
    title: 'options that are off by default',
    rows: ['2.1.3', '2.4.a'],
    objects: [],
    environment: OPTIONS,
    comparisons: [...waypointComparisons, ...policyComparisons],
    deviation: reachableGateways,
  },
  {
    title: 'a MeshConfig',
    rows: ['1.1.6', '1.7.1', '1.7.3', '1.7.5'],
    objects: [
      OTHER_ROOT,
      policy(OTHER_ROOT_NAMESPACE, 'everyone', '{ rules: [{}] }') +
        policy(
          OTHER_ROOT_NAMESPACE,
          'every-web',
          '{ action: DENY, selector: { matchLabels: { app: web } }, rules: [{}] }',
        ) +
        authentication(OTHER_ROOT_NAMESPACE, 'default', '{ mtls: { mode: PERMISSIVE } }'),
      MESH_CONFIG,
    ],
    namespaces: [OTHER_ROOT_NAMESPACE],
    environment: OPTIONS,
    comparisons: [...configured, ...ordinary],
    shows: /rows\.example/,
    deviation: reachableGateways,
  },
];

/** The config dump as upstream's tools parse it, written down by hand from docs/spec/observability.md §4.1. */
import * as z from 'zod';

const gateway = z.strictObject({
  destination: z.string().regex(/^[^/]*\/.+$/),
  hboneMtlsPort: z.int(),
});
const status = z.enum(['Healthy', 'Unhealthy']);
const filled = z.string().min(1);

const workload = z.strictObject({
  workloadIps: z.array(z.union([z.ipv4(), z.ipv6()])),
  waypoint: gateway.optional(),
  networkGateway: gateway.optional(),
  protocol: z.enum(['TCP', 'HBONE']),
  networkMode: z.enum(['Standard', 'HostNetwork']),
  uid: filled.optional(),
  name: z.string(),
  namespace: z.string(),
  trustDomain: filled.optional(),
  serviceAccount: filled.optional(),
  network: filled.optional(),
  workloadName: filled.optional(),
  workloadType: z.enum(['deployment', 'cronjob', 'pod', 'job']).optional(),
  canonicalName: filled.optional(),
  canonicalRevision: filled.optional(),
  hostname: filled.optional(),
  node: filled.optional(),
  nativeTunnel: z.literal(true).optional(),
  applicationTunnel: z
    .strictObject({ protocol: z.enum(['NONE', 'PROXY']), port: z.int().nullable() })
    .optional(),
  authorizationPolicies: z.array(filled).min(1).optional(),
  status,
  clusterId: z.string(),
  locality: z
    .strictObject({
      region: filled.optional(),
      zone: filled.optional(),
      subzone: filled.optional(),
    })
    .optional(),
  services: z
    .array(z.string().regex(/^[^/]+\/.+$/))
    .min(1)
    .optional(),
  capacity: z.int(),
});

const service = z.strictObject({
  name: z.string(),
  namespace: z.string(),
  hostname: z.string(),
  vips: z.array(z.string().regex(/^[^/]*\/[^/]+$/)),
  cidrVips: z.array(z.strictObject({ network: z.string(), cidr: z.string() })).optional(),
  ports: z.record(z.string().regex(/^\d+$/), z.int()),
  endpoints: z.record(
    z.string(),
    z.strictObject({ workloadUid: filled, port: z.record(z.string(), z.int()), status }),
  ),
  subjectAltNames: z.array(z.string()),
  waypoint: gateway.optional(),
  weightedWaypoints: z
    .array(z.strictObject({ destination: gateway, weight: z.int() }))
    .min(1)
    .optional(),
  loadBalancer: z
    .strictObject({
      routingPreferences: z.array(
        z.enum(['Region', 'Zone', 'Subzone', 'Node', 'Cluster', 'Network']),
      ),
      mode: z.enum(['Standard', 'Strict', 'Failover', 'Passthrough']),
      healthPolicy: z.enum(['OnlyHealthy', 'AllowAll']),
    })
    .optional(),
  ipFamilies: z.enum(['IPv4', 'IPv6', 'Dual']).optional(),
  canonical: z.boolean(),
  visibility: z.string(),
});

const text = z.union([
  z.strictObject({ Exact: z.string() }),
  z.strictObject({ Prefix: z.string() }),
  z.strictObject({ Suffix: z.string() }),
  z.strictObject({ Presence: z.tuple([]) }),
]);
const texts = z.array(text).min(1).optional();
const accounts = z.array(z.unknown()).min(1).optional();
const ranges = z
  .array(z.union([z.cidrv4(), z.cidrv6()]))
  .min(1)
  .optional();
const ports = z.array(z.int()).min(1).optional();

const match = z.strictObject({
  namespaces: texts,
  notNamespaces: texts,
  serviceAccounts: accounts,
  notServiceAccounts: accounts,
  principals: texts,
  notPrincipals: texts,
  sourceIps: ranges,
  notSourceIps: ranges,
  destinationIps: ranges,
  notDestinationIps: ranges,
  destinationPorts: ports,
  notDestinationPorts: ports,
});

const policy = z.strictObject({
  name: filled,
  namespace: z.string(),
  scope: z.enum(['Global', 'Namespace', 'WorkloadSelector']),
  action: z.enum(['Allow', 'Deny']),
  rules: z.array(z.array(z.array(match))),
  dryRun: z.boolean(),
});

const seconds = z.string().regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
const certificate = z.strictObject({
  pem: z.string().refine((pem) => Buffer.from(pem, 'base64').toString().startsWith('-----BEGIN')),
  serialNumber: z.string().regex(/^\d+$/),
  validFrom: seconds,
  expirationTime: seconds,
});

const connection = <Protocols extends readonly string[]>(protocols: Protocols) =>
  z.strictObject({
    src: z.string().regex(/:\d+$/),
    originalDst: z.string().nullable(),
    actualDst: z.string().regex(/:\d+$/),
    protocol: z.enum(protocols),
  });

const info = z.strictObject({ name: filled, namespace: filled, serviceAccount: filled });
const pod = z.union([
  z.strictObject({ state: z.literal('Pending'), info }),
  z.strictObject({
    state: z.literal('Up'),
    connections: z.strictObject({
      inbound: z.array(connection(['HBONE', 'TCP'])),
      outbound: z.array(connection(['HBONE', 'DOUBLEHBONE', 'TCP'])),
    }),
    info,
  }),
]);

/** The whole of it; nothing may be missing, and nothing added. */
export const configDumpSchema = z.strictObject({
  workloads: z.array(workload),
  services: z.array(service),
  policies: z.array(policy),
  stagedServices: z.record(z.string(), z.unknown()),
  staticConfig: z.strictObject({
    workloads: z.array(workload),
    policies: z.array(policy),
    services: z.array(service),
  }),
  version: z.strictObject({
    version: filled,
    gitRevision: filled,
    rustVersion: filled,
    buildProfile: filled,
    buildStatus: filled,
    istioVersion: filled,
    cryptoProvider: filled,
  }),
  config: z.record(z.string(), z.unknown()),
  certificates: z.array(
    z.strictObject({
      identity: filled,
      state: z.string().regex(/^(Initializing|Available|Unavailable: .+)$/),
      certChain: z.array(certificate),
      rootCerts: z.array(certificate),
    }),
  ),
  workloadState: z.record(z.string(), pod),
});

/** Schemas of the objects in a local configuration file (docs/spec/control.md §4). */
import { z } from 'zod';
import { tryCanonicalIp } from '../../net/address.ts';
import type { StringMatch } from '../../policy/model.ts';

const name = z.string().min(1);
const ip = z.string().refine((text) => tryCanonicalIp(text) !== null, 'must be an IP address');
const port = z.int().min(0).max(65_535);
const portMap = z.record(z.string().regex(/^\d{1,5}$/, 'must be a port'), port);

/** `network/ip`; the network may be empty. */
const networkIp = z
  .string()
  .refine((text) => tryCanonicalIp(splitFirst(text)[1]) !== null, 'must be network/ip');

const gateway = z.strictObject({
  destination: z
    .string()
    .refine((text) => splitFirst(text)[1] !== '', 'must be network/ip or namespace/hostname'),
  hboneMtlsPort: port,
});

/** The two sides of the first `/`; the second is empty without a `/`. */
export function splitFirst(text: string): readonly [string, string] {
  const at = text.indexOf('/');
  return at === -1 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

const optionalText = z.string().default('');

/** A workload. Unknown keys are ignored, as upstream does. */
export const workloadSchema = z.object({
  workloadIps: z.array(ip).min(1),
  namespace: name,
  services: z.record(z.string().includes('/'), portMap),
  uid: optionalText,
  name: optionalText,
  trustDomain: optionalText,
  serviceAccount: optionalText,
  network: optionalText,
  protocol: z.enum(['TCP', 'HBONE']).default('TCP'),
  networkMode: z.enum(['Standard', 'HostNetwork']).default('Standard'),
  waypoint: gateway.nullable().default(null),
  networkGateway: gateway.nullable().default(null),
  workloadName: optionalText,
  workloadType: z.enum(['deployment', 'cronjob', 'pod', 'job']).default('deployment'),
  canonicalName: optionalText,
  canonicalRevision: optionalText,
  hostname: optionalText,
  node: optionalText,
  nativeTunnel: z.boolean().default(false),
  applicationTunnel: z
    .strictObject({ protocol: z.enum(['NONE', 'PROXY']), port: port.default(0) })
    .nullable()
    .default(null),
  authorizationPolicies: z.array(name).default([]),
  status: z.enum(['Healthy', 'Unhealthy']).default('Healthy'),
  clusterId: optionalText,
  locality: z
    .strictObject({ region: optionalText, zone: optionalText, subzone: optionalText })
    .default({ region: '', zone: '', subzone: '' }),
  capacity: z.int().min(0).default(1),
});

/** A service. */
export const serviceSchema = z.strictObject({
  name,
  namespace: name,
  hostname: name,
  vips: z.array(networkIp),
  ports: portMap,
  cidrVips: z.array(z.strictObject({ network: z.string(), cidr: z.string() })).default([]),
  endpoints: z
    .union([z.array(z.unknown()).length(0), z.record(z.string(), z.never())], {
      error: 'must be empty: endpoints follow from the services of workloads',
    })
    .optional(),
  subjectAltNames: z.array(z.string()).default([]),
  waypoint: gateway.nullable().default(null),
  weightedWaypoints: z
    .array(z.strictObject({ destination: gateway, weight: z.int().min(0) }))
    .default([]),
  loadBalancer: z
    .strictObject({
      routingPreferences: z
        .array(z.enum(['Region', 'Zone', 'Subzone', 'Node', 'Cluster', 'Network']))
        .default([]),
      mode: z.enum(['Standard', 'Strict', 'Failover', 'Passthrough']).default('Standard'),
      healthPolicy: z.enum(['OnlyHealthy', 'AllowAll']).default('OnlyHealthy'),
    })
    .nullable()
    .default(null),
  ipFamilies: z.enum(['IPv4', 'IPv6', 'Dual']).nullable().default(null),
  canonical: z.boolean().default(false),
  visibility: z.enum(['Public', 'Namespace']).default('Public'),
});

/** The value of a tag `!Exact`, `!Prefix`, `!Suffix` or `!Presence`. */
export class TaggedMatch {
  readonly match: StringMatch;

  constructor(match: StringMatch) {
    this.match = match;
  }
}

const stringMatch = z.instanceof(TaggedMatch, {
  error: 'must be !Exact, !Prefix or !Suffix with a text, or !Presence []',
});
const matches = z.array(stringMatch).default([]);
const accounts = z
  .array(z.strictObject({ namespace: z.string(), serviceAccount: z.string() }))
  .default([]);
const ranges = z.array(z.string()).default([]);
const ports = z.array(port).default([]);

const matchSchema = z.strictObject({
  namespaces: matches,
  notNamespaces: matches,
  serviceAccounts: accounts,
  notServiceAccounts: accounts,
  principals: matches,
  notPrincipals: matches,
  sourceIps: ranges,
  notSourceIps: ranges,
  destinationIps: ranges,
  notDestinationIps: ranges,
  destinationPorts: ports,
  notDestinationPorts: ports,
});

/** A policy. Its rules are ORed lists of ANDed lists of ORed matches. */
export const policySchema = z.strictObject({
  name,
  namespace: z.string(),
  scope: z.enum(['Global', 'Namespace', 'WorkloadSelector']),
  action: z.enum(['Allow', 'Deny']),
  rules: z.array(z.array(z.array(matchSchema))),
  dryRun: z.boolean().default(false),
});

/** The whole file. */
export const localFileSchema = z.strictObject({
  workloads: z.array(workloadSchema).default([]),
  services: z.array(serviceSchema).default([]),
  policies: z.array(policySchema).default([]),
});

/** A workload as written. */
export type LocalWorkload = z.infer<typeof workloadSchema>;
/** A service as written. */
export type LocalService = z.infer<typeof serviceSchema>;
/** A policy as written. */
export type LocalPolicy = z.infer<typeof policySchema>;
/** A gateway as written. */
export type LocalGateway = z.infer<typeof gateway>;

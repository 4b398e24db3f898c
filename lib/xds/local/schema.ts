/** Schemas of the objects in a local configuration file (docs/spec/control.md §4). They yield the words of the model. */
import * as z from 'zod';
import { tryCanonicalIp } from '../../net/address.ts';
import type { StringMatch } from '../../policy/model.ts';
import type { GatewayAddress } from '../../state/model.ts';

const name = z.string().min(1);
const ip = z.string().refine((text) => tryCanonicalIp(text) !== null, 'must be an IP address');
const port = z.int().min(0).max(65_535);
const portMap = z.record(z.string().regex(/^\d{1,5}$/, 'must be a port'), port);

/** `network/ip`; the network may be empty. */
const networkIp = z
  .string()
  .refine((text) => tryCanonicalIp(splitFirst(text)[1]) !== null, 'must be network/ip');

const gateway = z
  .strictObject({
    destination: z
      .string()
      .refine((text) => splitFirst(text)[1] !== '', 'must be network/ip or namespace/hostname'),
    hboneMtlsPort: port,
  })
  .transform(({ destination, hboneMtlsPort }): GatewayAddress => {
    const [first, rest] = splitFirst(destination);
    const ip = tryCanonicalIp(rest);
    return {
      destination:
        ip === null
          ? { kind: 'hostname', namespace: first, hostname: rest }
          : { kind: 'address', network: first, ip },
      hboneMtlsPort,
    };
  });

/** A word of the file as the model's word for it. */
const word = <const Words extends Readonly<Record<string, string>>>(words: Words) =>
  z
    .enum(Object.keys(words) as (keyof Words & string)[])
    .transform((text): Words[keyof Words] => words[text]);

/** The two sides of the first `/`; the second is empty without a `/`. */
export function splitFirst(text: string): readonly [string, string] {
  const at = text.indexOf('/');
  return at === -1 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

const optionalText = z.string().default('');

/** A workload. Unknown keys are ignored, as upstream does. */
const workloadSchema = z.object({
  workloadIps: z.array(ip).min(1),
  namespace: name,
  services: z.record(z.string().includes('/'), portMap),
  uid: optionalText,
  name: optionalText,
  trustDomain: optionalText,
  serviceAccount: optionalText,
  network: optionalText,
  protocol: word({ TCP: 'NONE', HBONE: 'HBONE' }).default('NONE'),
  networkMode: word({ Standard: 'STANDARD', HostNetwork: 'HOST_NETWORK' }).default('STANDARD'),
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
  status: word({ Healthy: 'HEALTHY', Unhealthy: 'UNHEALTHY' }).default('HEALTHY'),
  clusterId: optionalText,
  locality: z
    .strictObject({ region: optionalText, zone: optionalText, subzone: optionalText })
    .default({ region: '', zone: '', subzone: '' }),
  capacity: z.int().min(0).default(1),
});

const SCOPES = {
  Region: 'REGION',
  Zone: 'ZONE',
  Subzone: 'SUBZONE',
  Node: 'NODE',
  Cluster: 'CLUSTER',
  Network: 'NETWORK',
} as const;
const MODES = {
  Standard: 'UNSPECIFIED',
  Strict: 'STRICT',
  Failover: 'FAILOVER',
  Passthrough: 'PASSTHROUGH',
} as const;

/** A service. */
const serviceSchema = z.strictObject({
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
      routingPreferences: z.array(word(SCOPES)).default([]),
      mode: word(MODES).default('UNSPECIFIED'),
      healthPolicy: word({ OnlyHealthy: 'ONLY_HEALTHY', AllowAll: 'ALLOW_ALL' }).default(
        'ONLY_HEALTHY',
      ),
    })
    .nullable()
    .default(null),
  ipFamilies: word({ IPv4: 'IPV4_ONLY', IPv6: 'IPV6_ONLY', Dual: 'DUAL' })
    .nullable()
    .transform((families) => families ?? 'AUTOMATIC')
    .default('AUTOMATIC'),
  canonical: z.boolean().default(false),
  visibility: word({ Public: 'PUBLIC', Namespace: 'NAMESPACE' }).default('PUBLIC'),
});

/** The value of a tag `!Exact`, `!Prefix`, `!Suffix` or `!Presence`. */
export class TaggedMatch {
  readonly match: StringMatch;

  constructor(match: StringMatch) {
    this.match = match;
  }
}

const stringMatch = z
  .instanceof(TaggedMatch, {
    error: 'must be !Exact, !Prefix or !Suffix with a text, or !Presence []',
  })
  .transform(({ match }) => match);
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
const policySchema = z.strictObject({
  name,
  namespace: z.string(),
  scope: word({ Global: 'GLOBAL', Namespace: 'NAMESPACE', WorkloadSelector: 'WORKLOAD_SELECTOR' }),
  action: word({ Allow: 'ALLOW', Deny: 'DENY' }),
  rules: z.array(z.array(z.array(matchSchema))),
  dryRun: z.boolean().default(false),
});

/** The whole file. */
export const localFileSchema = z.strictObject({
  workloads: z.array(workloadSchema).default([]),
  services: z.array(serviceSchema).default([]),
  policies: z.array(policySchema).default([]),
});

/** A workload of the file. */
export type LocalWorkload = z.infer<typeof workloadSchema>;
/** A service of the file. */
export type LocalService = z.infer<typeof serviceSchema>;
/** A policy of the file. */
export type LocalPolicy = z.infer<typeof policySchema>;

/** Istio's networking kinds: ServiceEntry and WorkloadEntry. */
import * as z from 'zod';
import { tryParseIp } from '../../../lib/net/address.ts';
import { dnsLabel, labelMap } from '../../../lib/kubernetes/label-fields.ts';
import { filled, ipRange, portName, portNumber, objectMeta } from './fields.ts';

const VERSIONS = [
  'networking.istio.io/v1',
  'networking.istio.io/v1beta1',
  'networking.istio.io/v1alpha3',
] as const;

const HOST = /^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.?$/i;

/** A host name, possibly with a leading wildcard label. */
const host = z
  .string()
  .max(255, 'must be at most 255 characters')
  .refine((text) => HOST.test(text) && tryParseIp(text) === null, 'is not a host name');

const endpointAddress = z
  .string()
  .refine(
    (text) => tryParseIp(text) !== null || (HOST.test(text) && !text.startsWith('*')),
    'must be an IP address or a host name',
  );

const endpointFields = {
  address: endpointAddress.optional(),
  ports: z.record(portName, portNumber).optional(),
  labels: labelMap.optional(),
  network: z.string().optional(),
  locality: z.string().optional(),
  weight: z.int().min(0, 'must not be negative').max(4_294_967_295).optional(),
  serviceAccount: z.string().optional(),
};

/** A WorkloadEntry. */
export const workloadEntrySchema = z.strictObject({
  apiVersion: z.enum(VERSIONS),
  kind: z.literal('WorkloadEntry'),
  metadata: objectMeta,
  spec: z.strictObject({ ...endpointFields, address: endpointAddress }),
  status: z.looseObject({}).optional(),
});

const entryPort = z.strictObject({
  number: portNumber,
  name: portName,
  protocol: filled.optional(),
  targetPort: portNumber.optional(),
});

const exportScope = z.enum(
  ['*', '.', '~'],
  'must be "*" (every namespace), "." (its own) or "~" (none)',
);

const serviceEntrySpec = z
  .strictObject({
    hosts: z.array(host).min(1, 'must hold at least one host'),
    addresses: z.array(ipRange).optional(),
    ports: z.array(entryPort).optional(),
    location: z.enum(['MESH_EXTERNAL', 'MESH_INTERNAL']).optional(),
    resolution: z.enum(['NONE', 'STATIC', 'DNS', 'DNS_ROUND_ROBIN', 'DYNAMIC_DNS']).optional(),
    endpoints: z.array(z.strictObject(endpointFields)).optional(),
    workloadSelector: z.strictObject({ labels: labelMap.optional() }).optional(),
    exportTo: z.array(exportScope).optional(),
    subjectAltNames: z.array(filled).optional(),
  })
  .superRefine((spec, context) => {
    const report = (path: (string | number)[], message: string): void =>
      context.addIssue({ code: 'custom', path, message });
    if (spec.workloadSelector !== undefined && (spec.endpoints?.length ?? 0) > 0) {
      report(['workloadSelector'], 'cannot be combined with endpoints');
    }
    const seen = new Set<number>();
    const names = new Set<string>();
    for (const [index, port] of (spec.ports ?? []).entries()) {
      if (seen.has(port.number)) report(['ports', index, 'number'], `${port.number} occurs twice`);
      if (names.has(port.name)) report(['ports', index, 'name'], `"${port.name}" occurs twice`);
      seen.add(port.number);
      names.add(port.name);
    }
    for (const [index, endpoint] of (spec.endpoints ?? []).entries()) {
      if (endpoint.address === undefined) {
        report(['endpoints', index, 'address'], 'is required');
      } else if (spec.resolution === 'STATIC' && tryParseIp(endpoint.address) === null) {
        report(['endpoints', index, 'address'], 'must be an IP address for resolution STATIC');
      }
    }
    for (const [index, name] of spec.hosts.entries()) {
      const wildcard = name.startsWith('*');
      if (wildcard && (spec.resolution === 'DNS' || spec.resolution === 'DNS_ROUND_ROBIN')) {
        report(['hosts', index], `a wildcard cannot be resolved by ${spec.resolution}`);
      }
    }
  });

/** A ServiceEntry. */
export const serviceEntrySchema = z.strictObject({
  apiVersion: z.enum(VERSIONS),
  kind: z.literal('ServiceEntry'),
  metadata: objectMeta.extend({ namespace: dnsLabel.optional() }),
  spec: serviceEntrySpec,
  status: z.looseObject({}).optional(),
});

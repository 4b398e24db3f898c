/** Schemas of fields that several kinds share. The error texts address the author of the manifest. */
import * as z from 'zod';
import {
  dnsLabel,
  dnsSubdomain,
  labelKey,
  labelMap,
} from '../../../lib/kubernetes/label-fields.ts';
import { tryParseIp } from '../../../lib/net/address.ts';
import { tryParsePrefix } from '../../../lib/net/prefix.ts';

/** Annotations: any text. */
const annotationMap = z.record(
  labelKey,
  z.string('must be text (write numbers and booleans in quotes)'),
);

/** 1 to 65535. */
export const portNumber = z
  .int('must be a whole number')
  .min(1, 'must be 1 to 65535')
  .max(65_535, 'must be 1 to 65535');

/** Name of a port, at most 15 characters. */
export const portName = z
  .string()
  .max(15, 'must be at most 15 characters')
  .regex(/^(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*$/, 'must be lower-case letters, digits and "-"');

/** A port by number or by name. */
export const portReference = z.union(
  [portNumber, portName],
  'must be a port number or a port name',
);

/** An IP address. */
export const ipAddress = z
  .string()
  .refine((text) => tryParseIp(text) !== null, 'is not an IP address');

/** An IP address or a CIDR range. */
export const ipRange = z
  .string()
  .refine((text) => tryParsePrefix(text) !== null, 'is not an IP address or CIDR range');

/** Non-empty text. */
export const filled = z.string().min(1, 'must not be empty');

/** Fields that the mesh does not read. They are listed so that a misspelt field is refused. */
export function unread<const Name extends string>(
  ...names: readonly Name[]
): Record<Name, z.ZodOptional<z.ZodUnknown>> {
  const fields = names.map((name) => [name, z.unknown().optional()] as const);
  return Object.fromEntries(fields) as Record<Name, z.ZodOptional<z.ZodUnknown>>;
}

/** `{matchLabels}` of Istio's policies. */
export const workloadSelector = z.strictObject({ matchLabels: labelMap.optional() });

const ownerReference = z.strictObject({
  apiVersion: z.string(),
  kind: z.string(),
  name: filled,
  uid: z.string(),
  controller: z.boolean().optional(),
  blockOwnerDeletion: z.boolean().optional(),
});

/** Metadata of every object. Fields that the server writes are accepted, so that its own output can be applied. */
export const objectMeta = z.strictObject({
  name: dnsSubdomain,
  namespace: dnsLabel.optional(),
  uid: z.string().optional(),
  labels: labelMap.optional(),
  annotations: annotationMap.optional(),
  ownerReferences: z.array(ownerReference).optional(),
  finalizers: z.array(z.string()).optional(),
  generateName: z.string().optional(),
  generation: z.int().optional(),
  resourceVersion: z.string().optional(),
  creationTimestamp: z.iso.datetime({ offset: true }).optional(),
  deletionTimestamp: z.iso.datetime({ offset: true }).optional(),
  deletionGracePeriodSeconds: z.int().optional(),
  managedFields: z.array(z.unknown()).optional(),
  selfLink: z.string().optional(),
});

/** Metadata whose name is a DNS label, because host names are made of it. */
export const labelNamedMeta = objectMeta.extend({ name: dnsLabel });

/** See {@link objectMeta}. */
export type ObjectMeta = z.output<typeof objectMeta>;

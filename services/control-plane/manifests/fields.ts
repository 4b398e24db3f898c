/** Schemas of fields that several kinds share. The error texts address the author of the manifest. */
import { z } from 'zod';
import { tryParseIp } from '../../../lib/net/address.ts';
import { tryParsePrefix } from '../../../lib/net/prefix.ts';

const LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const LABEL_VALUE = /^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$/;
const LABEL_NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/;

/** RFC 1123 label: names of namespaces, services, ports. */
export const dnsLabel = z
  .string()
  .max(63, 'must be at most 63 characters')
  .regex(LABEL, 'must be lower-case letters, digits and "-", starting and ending alphanumeric');

/** RFC 1123 subdomain: names of most objects. */
export const dnsSubdomain = z
  .string()
  .max(253, 'must be at most 253 characters')
  .regex(
    SUBDOMAIN,
    'must be lower-case letters, digits, "-" and ".", starting and ending alphanumeric',
  );

/** A label key with an optional DNS prefix. */
const labelKey = z.string().refine((key) => {
  const slash = key.indexOf('/');
  const name = key.slice(slash + 1);
  const prefix = slash === -1 ? null : key.slice(0, slash);
  return (
    name.length <= 63 &&
    LABEL_NAME.test(name) &&
    (prefix === null || (prefix.length <= 253 && SUBDOMAIN.test(prefix)))
  );
}, 'is not a valid label key');

/** A label value, possibly empty. */
const labelValue = z
  .string('must be text (write numbers and booleans in quotes)')
  .max(63, 'must be at most 63 characters')
  .regex(
    LABEL_VALUE,
    'must be letters, digits, "-", "_" and ".", starting and ending alphanumeric',
  );

/** Labels, or an equality selector. */
export const labelMap = z.record(labelKey, labelValue);

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

/** A label selector of Kubernetes. */
export const labelSelector = z.strictObject({
  matchLabels: labelMap.optional(),
  matchExpressions: z
    .array(
      z
        .strictObject({
          key: labelKey,
          operator: z.enum(['In', 'NotIn', 'Exists', 'DoesNotExist']),
          values: z.array(labelValue).optional(),
        })
        .superRefine(({ operator, values }, context) => {
          const needsValues = operator === 'In' || operator === 'NotIn';
          if (needsValues === (values !== undefined && values.length > 0)) return;
          const message = needsValues ? `is required for ${operator}` : `not with ${operator}`;
          context.addIssue({ code: 'custom', path: ['values'], message });
        }),
    )
    .optional(),
});

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

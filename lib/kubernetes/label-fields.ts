/** Schemas of names, labels and selectors of Kubernetes. The error texts address the author. */
import * as z from 'zod';

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
export const labelKey = z.string().refine((key) => {
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

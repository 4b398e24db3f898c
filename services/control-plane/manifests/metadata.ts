import { z } from 'zod';
import { annotationMap, dnsLabel, dnsSubdomain, filled, labelMap } from './fields.ts';

const ownerReference = z.strictObject({
  apiVersion: z.string(),
  kind: z.string(),
  name: filled,
  uid: z.string(),
  controller: z.boolean().optional(),
  blockOwnerDeletion: z.boolean().optional(),
});

/** What every object carries; fields the server writes are accepted, so that its own output can be applied. */
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

/** Metadata whose name is also a DNS label, as host names are made of it. */
export const labelNamedMeta = objectMeta.extend({ name: dnsLabel });

/** See {@link objectMeta}. */
export type ObjectMeta = z.output<typeof objectMeta>;

/** EndpointSlice: the addresses behind a Service. */
import * as z from 'zod';
import { filled, objectMeta, portNumber, unread } from './fields.ts';

const endpoint = z.strictObject({
  ...unread('hostname', 'nodeName', 'zone', 'hints', 'deprecatedTopology'),
  addresses: z.array(filled).min(1, 'must hold at least one address'),
  conditions: z
    .strictObject({
      ready: z.boolean().optional(),
      serving: z.boolean().optional(),
      terminating: z.boolean().optional(),
    })
    .optional(),
  targetRef: z
    .strictObject({
      ...unread('apiVersion', 'fieldPath', 'resourceVersion'),
      kind: z.string().optional(),
      namespace: z.string().optional(),
      name: z.string().optional(),
      uid: z.string().optional(),
    })
    .optional(),
});

const slicePort = z.strictObject({
  ...unread('appProtocol'),
  name: z.string().optional(),
  protocol: z.enum(['TCP', 'UDP', 'SCTP']).optional(),
  port: portNumber.optional(),
});

/** An EndpointSlice. */
export const endpointSliceSchema = z.strictObject({
  apiVersion: z.literal('discovery.k8s.io/v1'),
  kind: z.literal('EndpointSlice'),
  metadata: objectMeta,
  addressType: z.enum(['IPv4', 'IPv6', 'FQDN']),
  endpoints: z.array(endpoint).optional(),
  ports: z.array(slicePort).optional(),
});

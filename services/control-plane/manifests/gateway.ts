/** Gateway API: Gateway and GatewayClass. The mesh reads what waypoints and network gateways need. */
import * as z from 'zod';
import { dnsSubdomain, labelSelector } from '../../../lib/kubernetes/label-fields.ts';
import { filled, objectMeta, portNumber, unread } from './fields.ts';

const VERSIONS = ['gateway.networking.k8s.io/v1', 'gateway.networking.k8s.io/v1beta1'] as const;

const listener = z.strictObject({
  ...unread('hostname', 'tls'),
  name: filled,
  port: portNumber,
  protocol: filled,
  allowedRoutes: z
    .strictObject({
      ...unread('kinds'),
      namespaces: z
        .strictObject({
          from: z.enum(['All', 'Same', 'Selector', 'None']).optional(),
          selector: labelSelector.optional(),
        })
        .superRefine(({ from, selector }, context) => {
          if (from !== 'Selector' || selector !== undefined) return;
          const message = 'is required for Selector';
          context.addIssue({ code: 'custom', path: ['selector'], message });
        })
        .optional(),
    })
    .optional(),
});

const gatewayAddress = z.strictObject({ type: filled.optional(), value: filled });

/** A Gateway. */
export const gatewaySchema = z.strictObject({
  apiVersion: z.enum(VERSIONS),
  kind: z.literal('Gateway'),
  metadata: objectMeta,
  spec: z.strictObject({
    ...unread('infrastructure', 'allowedListeners', 'backendTLS', 'defaultScope', 'tls'),
    gatewayClassName: dnsSubdomain,
    listeners: z.array(listener).optional(),
    addresses: z.array(gatewayAddress).optional(),
  }),
  status: z
    .looseObject({ addresses: z.array(z.looseObject(gatewayAddress.shape)).optional() })
    .optional(),
});

/** A GatewayClass. */
export const gatewayClassSchema = z.strictObject({
  apiVersion: z.enum(VERSIONS),
  kind: z.literal('GatewayClass'),
  metadata: objectMeta,
  spec: z.strictObject({ ...unread('parametersRef', 'description'), controllerName: filled }),
  status: z.looseObject({}).optional(),
});

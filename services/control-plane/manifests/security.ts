/** Istio's security kinds. Unknown fields and values are refused, because a lost condition would widen access. */
import * as z from 'zod';
import { dnsSubdomain } from '../../../lib/kubernetes/label-fields.ts';
import { filled, ipRange, workloadSelector, objectMeta } from './fields.ts';

const VERSIONS = ['security.istio.io/v1', 'security.istio.io/v1beta1'] as const;

const HIGHEST_PORT = 65_535;

const portText = z
  .string('must be text (write the port in quotes)')
  .refine(
    (text) => /^[1-9]\d{0,4}$/.test(text) && Number(text) <= HIGHEST_PORT,
    'is not a port from 1 to 65535',
  );

const principal = filled.refine(
  (text) => !text.startsWith('spiffe://'),
  'must be written without "spiffe://", it could never match',
);

const serviceAccount = z
  .string()
  .regex(
    /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(\/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$/,
    'must be "service-account" or "namespace/service-account", without wildcards',
  );

/** A list that is absent or not empty; the meaning of an empty one is ambiguous. */
const some = <Item extends z.ZodType>(item: Item): z.ZodOptional<z.ZodArray<Item>> =>
  z.array(item).min(1, 'must not be empty').optional();

const source = z
  .strictObject({
    principals: some(principal),
    notPrincipals: some(principal),
    requestPrincipals: some(filled),
    notRequestPrincipals: some(filled),
    namespaces: some(filled),
    notNamespaces: some(filled),
    ipBlocks: some(ipRange),
    notIpBlocks: some(ipRange),
    remoteIpBlocks: some(ipRange),
    notRemoteIpBlocks: some(ipRange),
    serviceAccounts: some(serviceAccount),
    notServiceAccounts: some(serviceAccount),
    trustDomains: some(filled),
    notTrustDomains: some(filled),
  })
  .superRefine((value, context) => {
    refuseEmpty(value, context);
    const accounts = value.serviceAccounts !== undefined || value.notServiceAccounts !== undefined;
    for (const field of ['principals', 'notPrincipals', 'namespaces', 'notNamespaces'] as const) {
      if (accounts && value[field] !== undefined) {
        context.addIssue({
          code: 'custom',
          path: [field],
          message: 'cannot be combined with serviceAccounts',
        });
      }
    }
  });

const operation = z
  .strictObject({
    hosts: some(filled),
    notHosts: some(filled),
    ports: some(portText),
    notPorts: some(portText),
    methods: some(filled),
    notMethods: some(filled),
    paths: some(filled),
    notPaths: some(filled),
  })
  .superRefine(refuseEmpty);

function refuseEmpty(value: object, context: z.RefinementCtx): void {
  if (Object.values(value).every((field) => field === undefined)) {
    context.addIssue({ code: 'custom', message: 'must hold at least one condition' });
  }
}

/** `when` keys and the schemas of their values. */
const PLAIN_KEYS: ReadonlyMap<string, z.ZodType<string> | null> = new Map([
  ['source.ip', ipRange],
  ['remote.ip', ipRange],
  ['source.namespace', null],
  ['source.principal', principal],
  ['source.serviceAccount', serviceAccount],
  ['destination.ip', ipRange],
  ['destination.port', portText],
  ['connection.sni', null],
  ['request.auth.principal', null],
  ['request.auth.audiences', null],
  ['request.auth.presenter', null],
]);
const BRACKET_KEYS = [
  /^request\.headers\[[^\]]+\]$/,
  /^request\.auth\.claims(\[[^\]]+\])+$/,
  /^experimental\.envoy\.filters\..+$/,
];

const condition = z
  .strictObject({ key: filled, values: some(filled), notValues: some(filled) })
  .superRefine((value, context) => {
    const plain = PLAIN_KEYS.get(value.key);
    if (plain === undefined && !BRACKET_KEYS.some((pattern) => pattern.test(value.key))) {
      context.addIssue({ code: 'custom', path: ['key'], message: `unknown key "${value.key}"` });
    }
    if (value.values === undefined && value.notValues === undefined) {
      context.addIssue({ code: 'custom', message: 'must hold values or notValues' });
    }
    for (const field of ['values', 'notValues'] as const) {
      for (const [index, text] of (value[field] ?? []).entries()) {
        const result = plain?.safeParse(text);
        if (result?.success === false) {
          const message = result.error.issues[0]?.message ?? 'is invalid';
          context.addIssue({ code: 'custom', path: [field, index], message });
        }
      }
    }
  });

const rule = z.strictObject({
  from: some(z.strictObject({ source })),
  to: some(z.strictObject({ operation })),
  when: some(condition),
});

const targetReference = z.strictObject({
  group: z.string().optional(),
  kind: filled,
  name: dnsSubdomain,
  namespace: z.string().optional(),
});

const authorizationSpec = z
  .strictObject({
    selector: workloadSelector.optional(),
    targetRef: targetReference.optional(),
    targetRefs: some(targetReference),
    action: z.enum(['ALLOW', 'DENY', 'AUDIT', 'CUSTOM']).optional(),
    provider: z.strictObject({ name: filled }).optional(),
    rules: z.array(rule).optional(),
  })
  .superRefine((spec, context) => {
    const targets = [spec.selector, spec.targetRef, spec.targetRefs].filter(
      (target) => target !== undefined,
    );
    if (targets.length > 1) {
      context.addIssue({
        code: 'custom',
        message: 'only one of selector, targetRef and targetRefs may be set',
      });
    }
    if (spec.action === 'CUSTOM' && spec.provider === undefined) {
      context.addIssue({ code: 'custom', path: ['provider'], message: 'is required for CUSTOM' });
    }
  });

/** An AuthorizationPolicy. */
export const authorizationPolicySchema = z.strictObject({
  apiVersion: z.enum(VERSIONS),
  kind: z.literal('AuthorizationPolicy'),
  metadata: objectMeta,
  spec: authorizationSpec.default({}),
  status: z.looseObject({}).optional(),
});

const mutualTls = z.strictObject({
  mode: z.enum(['UNSET', 'DISABLE', 'PERMISSIVE', 'STRICT']).optional(),
});

const peerAuthenticationSpec = z
  .strictObject({
    selector: workloadSelector.optional(),
    mtls: mutualTls.optional(),
    portLevelMtls: z.record(portText, mutualTls).optional(),
  })
  .superRefine((spec, context) => {
    const selects = Object.keys(spec.selector?.matchLabels ?? {}).length > 0;
    if (!selects && Object.keys(spec.portLevelMtls ?? {}).length > 0) {
      context.addIssue({
        code: 'custom',
        path: ['portLevelMtls'],
        message: 'needs a selector with matchLabels',
      });
    }
  });

/** A PeerAuthentication. */
export const peerAuthenticationSchema = z.strictObject({
  apiVersion: z.enum(VERSIONS),
  kind: z.literal('PeerAuthentication'),
  metadata: objectMeta,
  spec: peerAuthenticationSpec.default({}),
  status: z.looseObject({}).optional(),
});

/** Finds pods that NetworkPolicies keep tunnels out of. Pure. */
import * as z from 'zod';
import { PROXY_PORTS } from '../../../lib/redirect/rules.ts';
import { matchesSelector } from '../../../lib/kubernetes/label-selector.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';

const selectorSchema = z.object({
  matchLabels: z.record(z.string(), z.string()).optional(),
  matchExpressions: z
    .array(
      z.object({
        key: z.string(),
        operator: z.string(),
        values: z.array(z.string()).optional(),
      }),
    )
    .optional(),
});
const portSchema = z.object({
  protocol: z.string().default('TCP'),
  port: z.union([z.number(), z.string()]).optional(),
  endPort: z.number().optional(),
});
const policySchema = z.object({
  metadata: z.object({ name: z.string(), namespace: z.string() }),
  spec: z
    .object({
      podSelector: selectorSchema.prefault({}),
      policyTypes: z.array(z.string()).default(['Ingress']),
      ingress: z.array(z.object({ ports: z.array(portSchema).default([]) })).default([]),
    })
    .prefault({}),
});

/** The fields of a NetworkPolicy that matter here. */
export type IngressPolicy = z.infer<typeof policySchema>;

/** Reads a list of NetworkPolicies. Throws a ZodError for what is none. */
export function readPolicies(list: unknown): readonly IngressPolicy[] {
  return z.object({ items: z.array(policySchema) }).parse(list).items;
}

/**
 * Returns the policy that closes port 15008 of the pod to everybody; null when there is none. Policies add up: one that opens the
 * port to some peers is enough, for who those are is the operator's choice.
 */
export function blockingPolicy(
  policies: readonly IngressPolicy[],
  pod: { readonly namespace: string; readonly labels: Labels },
): string | null {
  const isolating = policies.filter(
    ({ metadata, spec }) =>
      metadata.namespace === pod.namespace &&
      spec.policyTypes.includes('Ingress') &&
      matchesSelector(spec.podSelector, pod.labels),
  );
  const opens = isolating.some(({ spec }) => spec.ingress.some(({ ports }) => letsIn(ports)));
  const [first] = isolating;
  return first === undefined || opens ? null : `${first.metadata.namespace}/${first.metadata.name}`;
}

/** No ports mean all ports. A name is that of a container's port, and no container has this one. */
function letsIn(ports: readonly z.infer<typeof portSchema>[]): boolean {
  if (ports.length === 0) return true;
  return ports.some(({ protocol, port, endPort }) => {
    if (protocol !== 'TCP') return false;
    if (port === undefined) return true;
    if (typeof port === 'string') return false;
    return port <= PROXY_PORTS.hbone && PROXY_PORTS.hbone <= (endPort ?? port);
  });
}

/** The question of `weft policy explain` and its answer; `lib/state/explain.ts` finds it. */
import * as z from 'zod';

/** Asks whether a pod would be allowed to connect. `to.name` is a pod or a service of the namespace. */
export const explainRequestSchema = z.object({
  from: z.object({ namespace: z.string().min(1), pod: z.string().min(1) }),
  to: z.object({
    namespace: z.string().min(1),
    name: z.string().min(1),
    port: z.int().min(1).max(65_535),
  }),
});

/** See {@link explainRequestSchema}. */
export type ExplainRequest = z.infer<typeof explainRequestSchema>;

/** The answer, and the policy and path that decided it. */
export const explainResultSchema = z.object({
  allowed: z.boolean(),
  /** Key `namespace/name` of the deciding policy, null when none decided. */
  policy: z.string().nullable(),
  /** Index of the rule that matched, counted from 0. */
  rule: z.int().nonnegative().nullable(),
  /**
   * `passthrough` is plain TCP, `same-node` the fast path between pods of one node, `double-hbone` a tunnel inside that to the
   * gateway of another network, `none` means that the destination is unknown or cannot be reached.
   */
  path: z.enum(['passthrough', 'hbone', 'same-node', 'waypoint', 'double-hbone', 'none']),
  /**
   * Stable word: a verdict's reason; `not-enforced` when no proxy guards the destination; `waypoint-bypassed` when traffic must
   * pass the destination's waypoint; `no-identities` when no workload could answer for a service on another network; or the
   * reason why there is no path: `unknown-source`, `unknown-destination`, `no-upstream`, `not-ready`.
   */
  reason: z.string().min(1),
  /** Identity of the source as the destination would see it; null for plaintext. */
  from: z.string().nullable(),
  /** `ip:port` of the endpoint that was looked at; null when there is none. */
  to: z.string().nullable(),
  /** `ip:port` the connection is made to: the endpoint, its HBONE port, a waypoint or a gateway. */
  nextHop: z.string().nullable(),
  /** Uid of the workload behind `nextHop`. */
  workload: z.string().nullable(),
  /** Service the traffic is meant for, `namespace/hostname`. */
  service: z.string().nullable(),
  /** Identities of which the next hop must present one; empty for plain TCP. */
  expectedSans: z.array(z.string()),
  /** Keys of dry-run policies that would have mattered. */
  dryRun: z.array(z.string()),
  /** A sentence for people. */
  detail: z.string(),
});

/** See {@link explainResultSchema}. */
export type ExplainResult = z.infer<typeof explainResultSchema>;

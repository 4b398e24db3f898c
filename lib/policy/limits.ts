/** Bounds of the policy folder, each with its reason. */

/** Wait for a listed policy that is not known, before it denies (docs/decisions/policy-fails-closed.md). */
export const UNKNOWN_REFERENCE_WAIT_MS = 5_000;

/** Workloads whose missing references are remembered: far more than the pods of a node. */
export const WAITING_WORKLOADS_MAX = 10_000;

/** Effective sets remembered between changes: distinct (namespace, policy list) pairs of the workloads asked for. */
export const EFFECTIVE_CACHE_MAX = 10_000;

/** Longest reason of a rejection that is kept. */
export const REASON_CHARS_MAX = 1_000;

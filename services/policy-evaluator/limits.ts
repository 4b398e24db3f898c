/** Bounds of the evaluator, each with its reason. */

/** Longest time that work holds the event loop: well below the time a lock or a heartbeat tolerates. */
export const SLICE_MS = 8;

/** Delay from the first change of a burst to the one look at all of them. */
export const RECONCILE_DELAY_MS = 50;

/** Interval of looks without any change: jobs get lost, programs age. */
export const RECONCILE_INTERVAL_MS = 5_000;

/** Delay before a set that still has no program is requested again; it doubles each time. */
export const REQUEST_AGAIN_MS = 10_000;

/** Ceiling of {@link REQUEST_AGAIN_MS}. */
export const REQUEST_AGAIN_MAX_MS = 600_000;

/** An unused program is kept this long, so that a pod that restarts finds it again. */
export const UNUSED_PROGRAM_MS = 600_000;

/** Compile jobs in hand at a time; more would only take turns on the same thread. */
export const COMPILE_CONCURRENCY = 2;

/** Explain jobs in hand at a time. */
export const EXPLAIN_CONCURRENCY = 4;

/** Lifetime of an answer to an explain job. */
export const EXPLAIN_LIFETIME_MS = 60_000;

/** Longest wait of a compile job for this process's copy of the policies to catch up with the requester's. */
export const CATCH_UP_MS = 1_000;

/** Largest program that is published, in match conditions: encoded about 4 MB, the bus's limit of a row. Node proxies compile larger sets themselves. */
export const PROGRAM_CONDITIONS_MAX = 12_000;

/** Unreadable rows that are logged one by one; after that only each hundredth is. All are counted. */
export const UNREADABLE_LOG_LINES_MAX = 20;
/** Largest body of a request for an explanation: it has four names and a port. */
export const MAX_EXPLAIN_BYTES = 16_384;

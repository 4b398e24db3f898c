/** Bounds of the evaluator, each with its reason. */

/** How long work may hold the event loop: well below the time a lock or a heartbeat tolerates. */
export const SLICE_MS = 8;

/** A burst of changes is worked off once, this long after its first. */
export const RECONCILE_DELAY_MS = 50;

/** Between looks at what is missing or unused without any change: jobs that got lost, programs that aged. */
export const RECONCILE_INTERVAL_MS = 5_000;

/** A set that still has no program is asked for again after this, twice as long each time. */
export const REQUEST_AGAIN_MS = 10_000;

/** Ceiling of that. */
export const REQUEST_AGAIN_MAX_MS = 600_000;

/** A program nobody uses is kept this long: a pod that restarts finds it again. */
export const UNUSED_PROGRAM_MS = 600_000;

/** Compile jobs in hand at a time; more would only take turns on the same thread. */
export const COMPILE_CONCURRENCY = 2;

/** Explain jobs in hand at a time. */
export const EXPLAIN_CONCURRENCY = 4;

/** How long an answer to an explain job can be fetched. */
export const EXPLAIN_LIFETIME_MS = 60_000;

/** How long a compile job waits for this process's copy of the policies to catch up with the one that asked. */
export const CATCH_UP_MS = 1_000;

/** Largest program that is published, in match conditions: encoded about 4 MB, the bus's limit of a row. Node proxies compile larger sets themselves. */
export const PROGRAM_CONDITIONS_MAX = 12_000;

/** Unreadable rows written to the log one by one; after that only each hundredth, all are counted. */
export const UNREADABLE_LOG_LINES_MAX = 20;

/** Bounds of the bus, each with its reason. */

/** Entries kept in a table's change log. A reader away for longer re-reads; at 500 B a change this is 5 MB of Redis. */
export const LOG_ENTRIES_MAX = 10_000;

/** Changes written in one atomic step: keeps Redis busy for single milliseconds. */
export const APPLY_STEP_CHANGES_MAX = 1_000;

/** Bytes written in one atomic step; far below Redis's own 512 MB argument limit, and copied quickly. */
export const APPLY_STEP_BYTES_MAX = 4 * 1024 * 1024;

/** Largest row: a workload or policy is a few hundred bytes; beyond this something is broken. */
export const ROW_BYTES_MAX = 4 * 1024 * 1024;

/** Entries kept of names that are wanted, each of up to {@link WANTED_BATCH_MAX}; who still waits repeats its request. */
export const WANTED_ENTRIES_MAX = 1_000;

/** Names in one entry: some ten kilobytes. */
export const WANTED_BATCH_MAX = 256;

/** Requests older than this have no connection that waits: twice the longest wait. */
export const WANTED_FRESH_MS = 10_000;

/** Rows that one HSCAN returns: one slice of handler work. */
export const COPY_SLICE_ROWS = 500;

/** Longest time that rows of a mirrored table hold the event loop: well below the time a lock or a heartbeat tolerates. */
export const MIRROR_SLICE_MS = 8;

/** Longest time over which the full copies of all readers are spread after a loss of state. */
export const RESYNC_SPREAD_MAX_MS = 5_000;

/** Share of a row in that time: a table of 5,000 rows takes all of it, and a small table is copied at once. */
export const RESYNC_SPREAD_PER_ROW_MS = 1;

/** Log entries taken at a time. */
export const FOLLOW_SLICE_ENTRIES = 500;

/** Longest wait of a blocking read; then the reader checks that its position still exists. */
export const FOLLOW_BLOCK_MS = 10_000;

/** A blocking connection that is silent for longer than this is dead (Redis stopped, or the path is cut). */
export const BLOCKING_SILENCE_MS = FOLLOW_BLOCK_MS + 5_000;

/** Longest wait for the answer to a plain command: beyond it the caller gets BUS_UNAVAILABLE. */
export const COMMAND_TIMEOUT_MS = 10_000;

/** Attempts and redirections of a consumer's command in a cluster, four a second: a failover takes seconds, not a minute. */
export const CLUSTER_RETRIES_MAX = 240;

/** Malformed rows that are logged one by one; after that only each hundredth is. All are counted. */
export const MALFORMED_LOG_LINES_MAX = 20;

/** Interval of looks at the settings and the health of Redis; every new connection adds one. */
export const SERVER_CHECK_MS = 30_000;

/** Lifetime of a lease that names none: how long a standby waits for a killed holder. */
export const LEASE_TTL_MS = 8_000;

/** Interval of renewals: three chances before the lease runs out. */
export const LEASE_RENEW_MS = 2_000;

/** Jobs that may wait in one queue. A longer queue has no consumers, so the producer gets an error. */
export const JOBS_WAITING_MAX = 20_000;

/** Dead letters kept per queue; the oldest go first. */
export const DEAD_LETTERS_MAX = 1_000;

/** Length of BullMQ's event stream, which no one reads. */
export const QUEUE_EVENTS_MAX = 100;

/** Ceiling of the delay between the attempts of a job. */
export const JOB_BACKOFF_MAX_MS = 60_000;

/**
 * A job of a killed consumer is taken by another after at most this and two check intervals, and a proxy may wait for it without a
 * certificate. The consumer renews its lock each half of this time; where it stands still for longer, another runs the job, too
 * (docs/decisions/state-plane.md).
 */
export const JOB_LOCK_MS = 4_000;

/** Interval of looks for jobs whose consumer died. */
export const JOB_STALL_CHECK_MS = 2_000;

/** Times that a job may lose its consumer before it is given up: a few crashes are not the job's fault. */
export const JOB_STALLS_MAX = 10;

/** A member's entry is removed by the others when it was not renewed for this long. */
export const PRESENCE_KEPT_MS = 60_000;

/** Members read of one list: twice as many proxies as one node agent takes (lib/zds/limits.ts). */
export const PRESENCE_MAX = 128;

/** Results one process may wait for at a time: more than the pods of a node. */
export const RESULT_WAITS_MAX = 10_000;

/** Interval of looks at a result whose hint may have been lost. */
export const RESULT_POLL_MS = 1_000;

/** Bounds and times of the ingester, each with its reason. */
import type { LeaseTimes } from '../../lib/bus/lease.ts';

/**
 * Lifetime of the ingester's lease. A standby that follows the control plane itself takes over within three seconds of a kill.
 * The holder renews five times as often, so neither a slow turn of it nor a slow answer of Redis costs it the lease.
 */
export const INGEST_LEASE: LeaseTimes = { ttlMs: 2_000, renewMs: 400 };

/** When Redis is there and the lease is not won within this time, another ingester leads. */
export const STANDBY_AFTER_MS = 3_000;

/** Percent of the workloads beyond which removals are held: a zone of three, or a large deployment, may go at once. */
export const HELD_PERCENT = 30;

/** Fewer workloads than this are removed at once: in a small mesh they are a large share of it every day. */
export const HELD_WORKLOADS_MIN = 50;

/** Lifetime of the answer to `weft state accept`, which is read at once. */
export const RESULT_LIFETIME_MS = 60_000;

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

/** Names subscribed on demand: those in use on all nodes of this Redis. Each costs some hundred bytes here and in each node-proxy. */
export const WANTED_NAMES_MAX = 50_000;

/** A name that no node-proxy asked for in this time is unsubscribed; a node-proxy repeats those in use five times as often. */
export const WANTED_IDLE_MS = 10 * 60_000;

/** A name that was asked for within this time is in use, and is never given up for another: two repetitions of a node-proxy. */
export const WANTED_IN_USE_MS = 4 * 60_000;

/**
 * Names without a resource are asked for again after this time, because istiod tells of a later resource only by its own name.
 * For so long a new workload may be taken for an address outside the mesh.
 */
export const ABSENT_RECHECK_MS = 10_000;

/** Names without a resource that are asked for again in a second; more of them are asked for less often. */
export const ABSENT_RECHECKS_PER_SECOND = 500;

/** Names in one request to the control plane. */
export const DEMAND_NAMES_MAX = 1_000;

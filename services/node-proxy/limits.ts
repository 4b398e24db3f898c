/** Bounds of node-proxy, each with its reason. */

/** Pods of one process; a node holds 110 by default and 4,094 addresses in the local mesh. */
export const MAX_PODS = 4_096;

/** Tasks of one thread: all pods, plus the wiring task. */
export const MAX_TASKS_PER_THREAD = MAX_PODS + 1;

/** The node agent gives up on an Ack after 5 s, so a start must have its answer before that. */
export const POD_START_TIMEOUT_MS = 4_000;

/** An immediate stop closes sockets only; a thread that needs longer is not going to. */
export const POD_STOP_TIMEOUT_MS = 2_000;

/** Time beyond a graceful deadline that a thread gets to report the end. */
export const POD_DRAIN_GRACE_MS = 1_000;

/** Between attempts to start pods that could not be started (docs/spec/inpod.md §4). */
export const PENDING_RETRY_MS = 5_000;

/** Re-placement after a thread died: quick, because the pod is cut off meanwhile. */
export const REPLACE_BACKOFF = { baseMs: 100, maxMs: 5_000 } as const;

/** Between attempts to listen for the proxy itself; nobody waits for it. */
export const OWN_LISTENER_BACKOFF = { baseMs: 1_000, maxMs: 60_000 } as const;

/** Loading the listener's modules in a cold thread on a busy machine. */
export const ATTACH_TIMEOUT_MS = 120_000;

/** Between attempts to wire a replacement thread, and after how many the pool counts as lost. */
export const ATTACH_BACKOFF = { baseMs: 200, maxMs: 5_000 } as const;
export const ATTACH_ATTEMPTS = 5;

/** A thread answers a report between two I/O rounds; one that does not is left out of the sum. */
export const REPORT_TIMEOUT_MS = 2_000;

/** Between two times that the threads are asked for what they keep for export. */
export const EXPORT_POLL_MS = 250;

/** Time beyond that of a CPU profile in which a thread hands it over; profiles of minutes have megabytes. */
export const PROFILE_TIMEOUT_MS = 30_000;

/** Config dumps and trace listings in progress at once; each may hold a copy of much. */
export const MAX_CONFIG_DUMPS = 4;

/**
 * Descriptors, or a sixteenth of all where that is less, that no connection to one of the servers takes: Redis, files and the pods'
 * listeners have them to themselves when connections and scrapers took the rest.
 */
export const SERVER_SPARED_DESCRIPTORS = 64;

/** A client that takes nothing of an answer for this long is cut. */
export const RESPONSE_STALL_MS = 60_000;

/** Between looks at how busy the threads are. */
export const HOT_SAMPLE_MS = 1_000;

/** A thread busier than this gets new pods only when all are. */
export const BUSY_THREAD_UTILISATION = 0.7;

/** Between attempts to take a standard port that another process holds; costs three binds. */
export const PORT_RECLAIM_MS = 500;

/** Between two words of a proxy to the others of its node, and after how long without one it counts as gone. */
export const PRESENCE_INTERVAL_MS = 1_000;
export const PRESENCE_AGE_MS = 3_500;

/** Identities without a certificate that a proxy names to the others. */
export const PRESENCE_MISSING_MAX = 100;

/** Between looks whether a starting proxy may connect, and whether others listen where this one is about to stop. */
export const TAKEOVER_POLL_MS = 50;

/** Rows of one message to the state thread: some hundred kilobytes, a few milliseconds of work. */
export const FEED_ROWS_PER_MESSAGE = 256;

/** Objects of one message of a state dump. */
export const DUMP_OBJECTS_PER_MESSAGE = 200;

/** A state dump of 100,000 workloads takes a few seconds. */
export const DUMP_TIMEOUT_MS = 60_000;

/** Longest work of the state thread between two looks at its ports; keeps a miss below 5 ms. */
export const STATE_SLICE_MS = 1;

/**
 * A set whose program has not arrived by then is compiled here. An evaluator that works answers in a tenth of this;
 * one that does not must leave time enough to cut what a DENY denies within a second in all.
 */
export const PROGRAM_WAIT_MS = 250;

/** Lookups of one request; a routing decision needs fewer than ten. */
export const MAX_LOOKUP_KEYS = 256;

/** Longest local state file; some 10,000 workloads. It is parsed on the main thread, which carries no traffic. */
export const LOCAL_STATE_BYTES_MAX = 16_777_216;

/** After the last event of a local state file, and between looks at it without one. */
export const LOCAL_STATE_DEBOUNCE_MS = 100;
export const LOCAL_STATE_POLL_MS = 5_000;

/**
 * Young generation of the state thread: semi-spaces of 2 MB. Rows it reads are kept as bytes or thrown
 * away at once; unbound, loading its code alone grows it further, and an idle thread gives nothing back.
 */
export const YOUNG_GENERATION_MB = 6;

/** Endpoints of one message to a listener thread: some 0.5 ms of its time, and 1 ms of the state thread's. */
export const ENDPOINTS_PER_MESSAGE = 64;

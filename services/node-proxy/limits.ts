/** Bounds of node-proxy, each with its reason. */

/** Pods of one process; a node holds 110 by default and 4,094 addresses in the local mesh. */
export const MAX_PODS = 4_096;

/** Tasks of one thread: one for each pod, and the wiring task. */
export const MAX_TASKS_PER_THREAD = MAX_PODS + 1;

/** Time limit of a start; the node agent gives up on an Ack after 5 s. */
export const POD_START_TIMEOUT_MS = 4_000;

/** Time limit of an immediate stop, which only closes sockets; a thread that needs longer is stuck. */
export const POD_STOP_TIMEOUT_MS = 2_000;

/** Time after a graceful deadline in which a thread must report the end. */
export const POD_DRAIN_GRACE_MS = 1_000;

/** Time that siblings have for a message of the node agent; it gives up on the holder's Ack after 5 s. */
export const SIBLINGS_TIMEOUT_MS = 4_000;

/** Time between attempts to become the holder of the node agent's session; an attempt costs three system calls. */
export const HOLDER_CLAIM_MS = 250;

/** Time between attempts to listen for siblings; until then they serve what they have. */
export const SIBLINGS_LISTEN_RETRY_MS = 1_000;

/** Time between attempts to start pods that failed to start (docs/spec/inpod.md §4). */
export const PENDING_RETRY_MS = 5_000;

/** Times between placements after a thread died: short, because the pod is cut off meanwhile. */
export const REPLACE_BACKOFF = { baseMs: 100, maxMs: 5_000 } as const;

/** Times between attempts to listen for the proxy itself; nobody waits for it. */
export const OWN_LISTENER_BACKOFF = { baseMs: 1_000, maxMs: 60_000 } as const;

/** Time limit for a cold thread to load the listener's modules on a busy machine. */
export const ATTACH_TIMEOUT_MS = 120_000;

/** Times between attempts to wire a replacement thread, and the number of attempts before the pool counts as lost. */
export const ATTACH_BACKOFF = { baseMs: 200, maxMs: 5_000 } as const;
export const ATTACH_ATTEMPTS = 5;

/** Time limit of a report. A thread answers between two I/O rounds; one that does not is left out of the sum. */
export const REPORT_TIMEOUT_MS = 2_000;

/** Time between two fetches of the connections that threads keep for export. */
export const EXPORT_POLL_MS = 250;

/** Time after a CPU profile in which a thread must hand it over; profiles of minutes have megabytes. */
export const PROFILE_TIMEOUT_MS = 30_000;

/** Config dumps in progress at once; each holds a copy of all connections. */
export const MAX_CONFIG_DUMPS = 4;

/**
 * Descriptors that no connection to one of the servers takes, or a sixteenth of all when that is less. They stay free for Redis,
 * files and the pods' listeners when connections and scrapers took the rest.
 */
export const SERVER_SPARED_DESCRIPTORS = 64;

/** A client that takes nothing of an answer for this time is cut. */
export const RESPONSE_STALL_MS = 60_000;

/** Time between looks at how busy the threads are. */
export const HOT_SAMPLE_MS = 1_000;

/** A thread busier than this gets new pods only when all are. */
export const BUSY_THREAD_UTILISATION = 0.7;

/** Time between attempts to take a standard port that another process holds; an attempt costs three binds. */
export const PORT_RECLAIM_MS = 500;

/** Time between two announcements of a proxy to the others of its node, and the age at which it counts as gone. */
export const PRESENCE_INTERVAL_MS = 1_000;
export const PRESENCE_AGE_MS = 3_500;

/** Most identities without a certificate that a proxy names to the others. */
export const PRESENCE_MISSING_MAX = 100;

/**
 * How long a start waits for certificates when Redis shows no other proxy any more: where Redis was replaced just before, the others
 * announce themselves within an interval of it and the time of a new connection, and on a busy node they may be late.
 */
export const ANNOUNCED_AGAIN_MS = 5_000;

/** How long a start waits for certificates where a proxy that is not in Redis, such as ztunnel, may serve the node's pods. */
export const STRANGERS_WAIT_MS = 15_000;

/** Time between checks whether a starting proxy may connect, and whether others listen where this one is about to stop. */
export const TAKEOVER_POLL_MS = 50;

/** Rows of one message to the state thread: some hundred kilobytes, a few milliseconds of work. */
export const FEED_ROWS_PER_MESSAGE = 256;

/** Objects in one message of a state dump. */
export const DUMP_OBJECTS_PER_MESSAGE = 200;

/** Time limit of one part of a state dump; all of 100,000 workloads takes a few seconds. */
export const DUMP_TIMEOUT_MS = 60_000;

/** Longest work of the state thread between two looks at its ports; it keeps a lookup below 5 ms. */
export const STATE_SLICE_MS = 1;

/**
 * Wait for the program of a policy set before it is compiled here. A working evaluator answers in a tenth of it. Without one,
 * connections that a DENY forbids must still be cut within a second.
 */
export const PROGRAM_WAIT_MS = 250;

/** Lookups of one request; a routing decision needs fewer than ten. */
export const MAX_LOOKUP_KEYS = 256;

/** Longest local state file, for some 10,000 workloads. The main thread parses it, which carries no traffic. */
export const LOCAL_STATE_BYTES_MAX = 16_777_216;

/** Wait after the last event of a local state file, and time between looks at it without an event. */
export const LOCAL_STATE_DEBOUNCE_MS = 100;
export const LOCAL_STATE_POLL_MS = 5_000;

/**
 * Young generation of each thread beside the main one: semi-spaces of 2 MB. What a thread makes it keeps as bytes or drops at once, so
 * that a collection finds little alive, whatever its size. Without the bound, loading the code and new connections grow it to
 * 27 MB a thread, and an idle thread gives nothing back.
 */
export const YOUNG_GENERATION_MB = 6;

/**
 * Endpoints in one message to a listener thread: some 2 ms of its time, and 4 ms of the state thread's. A new service of 5,000 endpoints
 * takes 20 messages, each of which waits for the one before.
 */
export const ENDPOINTS_PER_MESSAGE = 256;

/** Longest wait of a connection for a name that nobody asked for before; upstream's has no limit. */
export const ON_DEMAND_WAIT_MS = 5_000;

/** Names of one process that lookups wait for at once; a further one is refused, and its connection fails closed. */
export const NAMES_WAITED_MAX = 1_024;

/** New names that one pod may ask for: at once, and a second. A pod that scans addresses must not use up the places of others. */
export const NAMES_OF_POD = { burst: 100, perSecond: 20 } as const;

/** Names in use that one process keeps subscribed; the least recently used are left to be asked for anew. */
export const NAMES_USED_MAX = 8_192;

/** A request for a name is repeated after this time: a standby ingester needs three seconds, and a connection waits for five. */
export const ASK_AGAIN_MS = 1_000;

/** Time between two reports of the names in use: a fifth of the time after which an ingester gives up a name. */
export const NAMES_REFRESH_MS = 2 * 60_000;

/** Names that wait to be sent to Redis: all that are in use, and as many again. */
export const NAMES_UNSENT_MAX = 16_384;

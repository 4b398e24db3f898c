/** Bounds of a listener thread, each with its reason. */

/** How long a connection waits for the mesh to tell of its own workload (docs/spec/dataplane.md §1). */
export const LOCAL_WORKLOAD_WAIT_MS = 5_000;

/** How long a connection waits for policies that its workload lists and nobody knows yet (docs/decisions/policy-fails-closed.md), with a margin for the state thread's own 5 s. */
export const POLICY_WAIT_MS = 6_000;

/** How long a connection waits for a lookup that cannot be answered yet. */
export const LOOKUP_WAIT_MS = 5_000;

/** How long a connection waits for the address of a name that the mesh gives for an endpoint. */
export const NAME_WAIT_MS = 5_000;

/**
 * Names that one pod looks up at once, until each has an address or fails, {@link NAME_LOOKUP_MS} at most; names with cached
 * answers need no place. Each has two questions, so that names that nobody answers for take half of a pod's `MAX_FORWARDS`
 * (dns/limits.ts). What one pod waits for delays no other.
 */
export const MAX_NAME_LOOKUPS = 32;

/**
 * Names of one pod that have their address while a question about their other family goes on; it is given up for the oldest. Together with
 * {@link MAX_NAME_LOOKUPS} they leave places to others.
 */
export const MAX_OPEN_NAMES = 32;

/** For all questions about one name: as long as one forwarded question may take (dns/limits.ts). No other search domain is tried later. */
export const NAME_LOOKUP_MS = 10_000;

/** How long a name that could not be looked up is not asked for again (RFC 9520 §3.2: a second at least). */
export const NAME_FAILURE_MS = 1_000;

/** Such names that one pod remembers; the oldest go first. */
export const MAX_NAME_FAILURES = 256;

/** Remembered answers about names of endpoints, of one thread: some 2,000 of them. */
export const NAME_CACHE_BYTES = 1_048_576;

/** Pause before a key that could not be answered is asked for again. */
export const LOOKUP_RETRY_MS = 100;

/** How long a connection waits for a certificate. Signing goes through a queue and the authority. */
export const CERTIFICATE_WAIT_MS = 10_000;

/**
 * Rounds of "which keys are needed" for one decision. The longest honest chain is address, service, waypoint,
 * gateway, workloads of each.
 */
export const MAX_DECISION_ROUNDS = 12;

/** Answers kept per thread, to host names as many again, some 2 kB each. The least recently used goes first. */
export const MAX_CACHED_ANSWERS = 10_000;

/** Endpoints of services that one thread holds, some 2.5 kB each, and the services; those used longest ago go first, with the answers that name them. */
export const MAX_HELD_ENDPOINTS = 50_000;

/** Services whose endpoints stay whatever their number: a decision names four at most, and two connections must not take them from each other. */
export const KEPT_SERVICES = 8;

/** Connections of one pod on one thread that may wait at once for lookups on demand, some 10 kB each; more fail closed. */
export const MAX_ON_DEMAND_WAITERS_PER_POD = 512;

/** Lookups of one thread that may be unanswered at once. */
export const MAX_PENDING_LOOKUPS = 10_000;

/**
 * Certificates made into TLS contexts in one turn of the event loop, some 0.75 ms each: changed roots come with those of all
 * identities at once, and connections are served in between.
 */
export const CERTIFICATES_PER_TURN = 4;

/** Connections that may wait at once for a certificate of one identity. */
export const MAX_CERTIFICATE_WAITERS = 10_000;

/** Connections of one pod on one thread; more are refused, so that a flood in one pod leaves the others their memory. */
export const MAX_CONNECTIONS_PER_POD = 50_000;

/** Descriptors of the process for each connection a pod may have: one takes two, and half of all are for the others. */
export const DESCRIPTORS_PER_POD_CONNECTION = 4;

/** Inbound tunnels of one pod that are still in their handshake. */
export const MAX_PENDING_HANDSHAKES = 2_000;

/**
 * Connections of one client address: silent connections of one host must not lock the others out. Above what the two pools of a
 * pod of ours have under way at once to one peer (lib/hbone/limits.ts).
 */
export const MAX_PENDING_HANDSHAKES_PER_SOURCE = 200;

/** Ended connections a thread can still tell of, about 1 kB each; `weft trace` looks within seconds. */
export const MAX_RECENT_CONNECTIONS = 512;

/** Connections of one pod that are among them though they did not fail: at once, and a second. Twice as many with those chosen by id. */
export const RECENT_OF_POD = { burst: 32, perSecond: 100 } as const;

/** About what a new connection costs a thread, and how many carried bytes cost one of the same, microseconds. */
export const CONNECTION_COST = 300;
export const BYTES_PER_COST = 600;

/** Connections accepted from the queue of a closing listener: the kernel's longest default queue. */
export const MAX_QUEUED_ACCEPTED = 4_096;

/**
 * Ended connections that wait to be fetched for export, about 1.5 kB each: some four seconds of the most a thread opens,
 * and it is asked four times a second.
 */
export const MAX_EXPORT_RECORDS = 4_096;

/** Records of one message of a report: about a millisecond of the thread's time. */
export const RECORDS_PER_MESSAGE = 256;

/** Backoff between the attempts of one connect. */
export const CONNECT_BACKOFF = { baseMs: 50, maxMs: 1_000 } as const;

/** How long the gateway of another network may take to end its stream after the tunnel inside has ended. */
export const INNER_TUNNEL_CLOSE_MS = 5_000;

/** How long a peer whose workload was removed may take to answer a probe (docs/decisions/removed-peers.md). */
export const PEER_PROBE_TIMEOUT_MS = 3_000;

/** Peers asked about at once after a change: a re-read of the whole state concerns all of them. */
export const MAX_PEER_CHECKS = 256;

/** How long sockets may take to close after they were destroyed, and tunnels to send their last bytes, before the pod's end is reported anyway. */
export const CLOSE_GRACE_MS = 2_000;

/** How long a client of the SOCKS5 listener may take to say where it wants to go. */
export const SOCKS_HANDSHAKE_MS = 10_000;

/**
 * Handshakes that one thread begins in one turn of its event loop, some 0.5 ms of processor each: what it carries waits no
 * longer than for these, and pods take turns (docs/decisions/budgets.md).
 */
export const HANDSHAKES_PER_TURN = 4;

/** Descriptors that are not for connections: pods' namespaces, listeners, pipes, files, servers. */
export const RESERVED_DESCRIPTORS = 512;

/** Descriptors that no accepted connection may take, or a quarter of all where that is less: what is carried needs them to go on. */
export const MAX_DESCRIPTOR_MARGIN = 256;

/** Between two lines that say that there are no descriptors. */
export const DESCRIPTOR_LINE_MS = 10_000;

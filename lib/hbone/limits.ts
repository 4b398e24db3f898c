/** Bounds of the tunnel code, each with its reason. */

/** Streams we let a peer have open on one tunnel (docs/spec/hbone.md §8). */
export const MAX_CONCURRENT_STREAMS = 200;

/**
 * Requests of one tunnel that are still being decided, counting those the peer has reset meanwhile. This is
 * what bounds a rapid reset: honest peers may reset as many finished connections as they like.
 */
export const MAX_UNDECIDED_REQUESTS = 2 * MAX_CONCURRENT_STREAMS;

/**
 * Requests a peer may give up before their answer, in one burst and per second, until its tunnel is closed: each costs
 * work that nobody wants. Clients that close before they are connected are rare, and their tunnel is their own.
 */
export const ABANDONED_REQUESTS = { burst: 3_000, perSecond: 300 } as const;

/** Header list a server takes, bytes (docs/spec/hbone.md §8). */
export const SERVER_HEADER_LIST_BYTES = 65_536;

/** Header list a client takes, bytes (docs/spec/hbone.md §8). */
export const CLIENT_HEADER_LIST_BYTES = 16_384;

/**
 * What one HTTP/2 session may hold in memory, in units of 10^6 bytes. Above it node:http2 refuses streams, so it must
 * exceed what flow control already bounds: a full stream window for each of the streams.
 */
export const SESSION_MEMORY_MB = 1_000;

/**
 * Resets a peer may send in one burst, and per second. ztunnel reports every closed connection by a reset,
 * and node:http2's default of a thousand closes the whole tunnel.
 */
export const STREAM_RESET_BURST = 10_000_000;

/** See {@link STREAM_RESET_BURST}. */
export const STREAM_RESET_RATE = 1_000_000;

/** Streams a session may reject, and malformed frames it may get, before node:http2 closes it. */
export const MAX_REJECTED_STREAMS = 1_000_000;

/** Malformed frames of one session; a peer that sends more is broken. */
export const MAX_INVALID_FRAMES = 100;

/** PINGs that may be unanswered at once: the periodic one, and probes. */
export const MAX_OUTSTANDING_PINGS = 4;

/** How long a peer may take to answer a CONNECT: 5 s to learn of the workload, 10 s to connect, and slack. */
export const RESPONSE_TIMEOUT_MS = 20_000;

/**
 * Connections a pool carries to one peer (pool key), on as many tunnels as that takes: what a peer of ours lets one client have
 * by default, and a tunnel for each where only one is let on a tunnel. More wait for another to end.
 */
export const MAX_STREAMS_PER_KEY = 25_600;

/** Tunnels to one peer that are made at once. */
export const MAX_CONNECTING_PER_KEY = 64;

/** Idle tunnels kept per pool; the least recently used go first (docs/spec/hbone.md §9). */
export const MAX_IDLE_TUNNELS = 500;

/**
 * Tunnels to a peer with others in use that may fail in a row until none is made in the place of one that failed: a peer that is
 * busy fails one now and then, one that is gone fails all.
 */
export const MAX_FAILED_CONNECTS = 3;

/**
 * How long no other tunnel is made to a peer that took nothing on one while it has connections on others, milliseconds: far
 * below what a request waits, and no flood of handshakes at a peer that is full.
 */
export const BARREN_REST_MS = 1_000;

/**
 * Tunnels a pool makes at once over all keys, from the connect to the end of the handshake. Each that is not answered is one
 * descriptor until its time limits pass, so that so many dead peers hold up no other.
 */
export const MAX_CONNECTING = 1_024;

/** Tunnels that wait for their turn to be made. */
export const MAX_QUEUED_CONNECTS = 4_096;

/** How long these wait, and a request for a tunnel with room, milliseconds: as long as a connect may be repeated by default. */
export const TUNNEL_WAIT_MS = 10_000;

/** Of those, handshakes a pool runs at once: a handshake holds the thread for milliseconds. */
export const MAX_HANDSHAKES = 64;

/** How long a handshake counts among them: a peer that says nothing takes no time of the thread, nor anyone's turn. */
export const HANDSHAKE_TURN_MS = 500;

/** Requests that may wait for a tunnel to one peer: when a peer that carried all of them is back, they come at once. */
export const MAX_WAITERS_PER_KEY = MAX_STREAMS_PER_KEY;

/** Live tunnels that are verified anew in one turn of the event loop when lists or roots change: some 3 ms of work. */
export const REVERIFIED_PER_TURN = 25;

/** How long a tunnel that was ended may take to send its last frames, GOAWAY among them. */
export const CLOSE_LINGER_MS = 1_000;

/** Baggage headers whose meaning a thread keeps, and the longest of them: at most half a megabyte. */
export const MAX_KEPT_BAGGAGE = 256;
export const MAX_KEPT_BAGGAGE_LENGTH = 1_024;

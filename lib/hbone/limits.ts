/** Bounds of the tunnel code, each with its reason. */

/** Streams that a peer may have open on one tunnel (docs/spec/hbone.md §8). */
export const MAX_CONCURRENT_STREAMS = 200;

/**
 * Undecided requests of one tunnel, including those that the peer has reset meanwhile. This bounds a rapid reset. Honest peers may
 * reset any number of finished connections.
 */
export const MAX_UNDECIDED_REQUESTS = 2 * MAX_CONCURRENT_STREAMS;

/**
 * Requests that a peer may give up before their answer, in one burst and per second. Beyond that its tunnel is closed, since each costs
 * useless work. Clients rarely close before they are connected.
 */
export const ABANDONED_REQUESTS = { burst: 3_000, perSecond: 300 } as const;

/** Largest header list that a server accepts, bytes (docs/spec/hbone.md §8). */
export const SERVER_HEADER_LIST_BYTES = 65_536;

/** Largest header list that a client accepts, bytes (docs/spec/hbone.md §8). */
export const CLIENT_HEADER_LIST_BYTES = 16_384;

/** Time a peer has to answer a CONNECT: 5 s to learn of the workload, 10 s to connect, and slack. */
export const RESPONSE_TIMEOUT_MS = 20_000;

/**
 * Connections that a pool carries to one peer (pool key), on as many tunnels as they need. A Weft peer accepts this many from one
 * client by default. Further connections wait for another to end.
 */
export const MAX_STREAMS_PER_KEY = 25_600;

/** Tunnels to one peer that may be in the making at once. */
export const MAX_CONNECTING_PER_KEY = 64;

/** Idle tunnels that a pool keeps; the least recently used go first (docs/spec/hbone.md §9). */
export const MAX_IDLE_TUNNELS = 500;

/**
 * Tunnels that may fail in a row, to a peer with tunnels in use, until failed ones are no longer replaced. A busy peer fails one now
 * and then; a peer that is gone fails all.
 */
export const MAX_FAILED_CONNECTS = 3;

/**
 * Pause before the next tunnel to a peer that accepted no stream on one while it has streams on others, milliseconds. It is far below
 * a request's wait, and keeps a full peer from a flood of handshakes.
 */
export const BARREN_REST_MS = 1_000;

/**
 * Tunnels that a pool makes at once over all keys, from the connect to the end of the handshake. A dead peer costs one descriptor until
 * the time limits pass, so that this many dead peers delay no other peer.
 */
export const MAX_CONNECTING = 1_024;

/** Tunnels that may wait for their turn to be made. */
export const MAX_QUEUED_CONNECTS = 4_096;

/** Wait of these tunnels, and of a request for a tunnel with room, milliseconds: as long as a connect may be repeated by default. */
export const TUNNEL_WAIT_MS = 10_000;

/** Handshakes that a pool runs at once. A handshake occupies the thread for milliseconds. */
export const MAX_HANDSHAKES = 64;

/** Time for which a handshake counts among them. A silent peer costs the thread no time, so it must not keep others from their turn. */
export const HANDSHAKE_TURN_MS = 500;

/** Requests that may wait for a tunnel to one peer. All connections of a peer come at once when it is back. */
export const MAX_WAITERS_PER_KEY = MAX_STREAMS_PER_KEY;

/** Live tunnels verified again in one turn of the event loop when lists or roots change: some 3 ms of work. */
export const REVERIFIED_PER_TURN = 25;

/** Time that an ended tunnel has to send its last frames, including GOAWAY. */
export const CLOSE_LINGER_MS = 1_000;

/** Times that a tunnel which ends in order gets it anew, while bytes wait: half of a megabyte takes as long at 17 kB/s. */
export const MAX_LINGER_RENEWALS = 30;

/**
 * Times that received bytes renew the time to acknowledge SETTINGS. With the default time of 10 s the acknowledgement may wait behind a
 * connection window of 16 MiB on a link of 56 kB/s.
 */
export const MAX_ACK_RENEWALS = 30;

/** Parsed baggage headers that a thread keeps, and the longest of them: at most half a megabyte. */
export const MAX_KEPT_BAGGAGE = 256;
export const MAX_KEPT_BAGGAGE_LENGTH = 1_024;

/** Values of the data path that are the same everywhere. Each says why nobody has to change it. */
import type { HotSettings } from '../pool/hot-threads.ts';

/**
 * PINGs find a dead peer within 15 s without one false alarm under load; a tunnel whose peer is alive costs two small frames
 * each time (docs/decisions/dead-peers.md).
 */
export const PING = { intervalMs: 5_000, timeoutMs: 10_000 } as const;

/** The same time by TCP, for bytes that were sent and not acknowledged. */
export const TUNNEL_USER_TIMEOUT_MS = 15_000;

/** Upstream's time limit of a connect (docs/spec/dataplane.md §9). */
export const CONNECT_TIMEOUT_MS = 10_000;

/** For TLS and the HTTP/2 preface together; a slow peer on a busy node needs about a second. */
export const HANDSHAKE_TIMEOUT_MS = 10_000;

/** An application gives up at about the total time, so more attempts would help nobody (docs/decisions/connect-retry.md). */
export const CONNECT_RETRY = { attempts: 3, totalMs: 10_000 } as const;

/** Two propagation delays of a new root (docs/decisions/changed-roots.md). */
export const DISTRUST_GRACE_MS = 60_000;

/** Each handshake costs about a millisecond of processor time; more at once would all time out. */
export const MAX_HANDSHAKES = 4_000;

/** Long enough not to answer a burst, short enough to help within a download (docs/decisions/hot-pods.md). */
export const HOT: HotSettings = { utilisation: 0.7, hotAfterMs: 5_000, coolAfterMs: 30_000 };

/** Upstream's (docs/spec/observability.md §5). */
export const READINESS_PORT = 15_021;

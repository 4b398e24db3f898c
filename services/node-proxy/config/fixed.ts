/** Constants of the data path. Each says why nobody has to change it. */
import type { HotSettings } from '../pool/hot-threads.ts';

/**
 * Times of PINGs. They find a dead peer within 15 s without false alarms under load, and cost a tunnel two small frames each time
 * (docs/decisions/dead-peers.md).
 */
export const PING = { intervalMs: 5_000, timeoutMs: 10_000 } as const;

/** TCP's time limit for bytes that were sent and not acknowledged; the same time as that of PINGs. */
export const TUNNEL_USER_TIMEOUT_MS = 15_000;

/** Upstream's time limit of a connect (docs/spec/dataplane.md §9). */
export const CONNECT_TIMEOUT_MS = 10_000;

/** Time limit for TLS and the HTTP/2 preface together; a slow peer on a busy node needs about a second. */
export const HANDSHAKE_TIMEOUT_MS = 10_000;

/** Bounds of attempts to connect. An application gives up at about the total time, so more would not help (docs/decisions/connect-retry.md). */
export const CONNECT_RETRY = { attempts: 3, totalMs: 10_000 } as const;

/** Time that peers keep a removed root: two propagation delays of a new root (docs/decisions/changed-roots.md). */
export const DISTRUST_GRACE_MS = 60_000;

/** Handshakes at once. Each costs about a millisecond of processor time, so more would all time out. */
export const MAX_HANDSHAKES = 4_000;

/** Times of hot pods: long enough to ignore a burst, short enough to help within a download (docs/decisions/hot-pods.md). */
export const HOT: HotSettings = { utilisation: 0.7, hotAfterMs: 5_000, coolAfterMs: 30_000 };

/** Share of WEFT_MAX_BYTES that one pod may hold: one pod with slow readers leaves room for others. */
export const POD_SHARE_OF_BYTES = 1 / 4;

/** Upstream's port (docs/spec/observability.md §5). */
export const READINESS_PORT = 15_021;

/** Most requests at once. Token check and signing take less than a millisecond each, so that this serves the burst of a large cluster. */
export const MAX_CONCURRENT_REQUESTS = 256;

/** Average requests per second; a burst of twice this passes. Further callers get RESOURCE_EXHAUSTED and retry. */
export const MAX_REQUESTS_PER_SECOND = 1_000;

/**
 * Average requests per second of one node, of all pods of one node that ask for themselves, or of one account without a node; a burst of
 * twice this passes. The largest node gets its certificates within 15 s, and it takes four runaway nodes to starve the others.
 */
export const MAX_CALLER_REQUESTS_PER_SECOND = 250;

/** Most callers with a remembered rate. */
export const MAX_CALLERS = 10_000;

/**
 * Average failed calls per second of one address; a burst of twice this passes. The burst equals the requests that may be
 * under way at once: a valid request counts only during its token check, so that valid requests are never refused. A check
 * takes 0.1 ms.
 */
export const MAX_FAILURES_PER_SECOND = MAX_CONCURRENT_REQUESTS / 2;

/** Longest request, a CSR and an identity. */
export const MAX_REQUEST_BYTES = 64 * 1024;

/** Istio's backdating, for clocks that run behind (docs/spec/istiod-ambient.md §4.3). */
export const BACKDATE_MS = 120_000;

/** Life of the CA's own root (docs/spec/istiod-ambient.md §4.4). */
export const ROOT_LIFETIME_MS = 3_650 * 86_400_000;

/** Life of the CA's own serving certificate. */
export const SERVING_LIFETIME_MS = 24 * 3_600_000;

/** Longest line of the pod watch: the largest pod that the manifest API accepts. */
export const MAX_WATCH_LINE_BYTES = 256 * 1024 * 1024;

/** Backoff of attempts to follow the pods. */
export const WATCH_BACKOFF = { baseMs: 200, maxMs: 5_000 } as const;

/** Shortest time between two writes of the pod cache. */
export const CACHE_WRITE_DELAY_MS = 500;

/** Delay after an event of a followed file: a projected volume replaces its files in several steps. */
export const FILE_DEBOUNCE_MS = 200;

/** Interval of readings without an event. */
export const FILE_POLL_MS = 2_000;

/** Shortest time of each step of a rotation: a kubelet takes up to two minutes to write a changed ConfigMap. */
export const ROTATION_SETTLE_MS = 180_000;

/** Interval of the checks whether a rotation can go on. */
export const ROTATION_CHECK_MS = 2_000;

/** Most nodes and accounts whose roots are followed, far above the nodes of a mesh. */
export const MAX_HOLDERS = 20_000;

/** Attempts to merge holders into an object that other CA processes write, too. Each failed one is another's success. */
export const HOLDER_MERGE_ATTEMPTS = 10;

/** Holders that could not be written are written after this time. */
export const HOLDER_RETRY_MS = 1_000;

/** Most signing threads; each signs more than 1,000 certificates a second. */
export const SIGNERS_MAX = 4;

/** A signing thread ends after this time without work. */
export const SIGNER_IDLE_MS = 30_000;

/** Tasks of one signing thread at once: one prepares while the library's own threads compute another's signature. */
export const TASKS_PER_SIGNER = 4;

/** Time until a failed write of the trust bundle is tried again. */
export const BUNDLE_RETRY_MS = 5_000;

/** Requests in work at once: token check and signing take well under a millisecond each, so this is a burst of a whole large cluster. */
export const MAX_CONCURRENT_REQUESTS = 256;

/** Requests per second over a longer time; a burst of twice this passes. Beyond, callers are told to come back. */
export const MAX_REQUESTS_PER_SECOND = 1_000;

/**
 * Requests per second of one node, or of one account without a node; again a burst of twice this passes. The largest node
 * has its certificates in a quarter of a minute, and four that run wild are needed to starve the others.
 */
export const MAX_CALLER_REQUESTS_PER_SECOND = 250;

/** Callers whose rate is remembered. */
export const MAX_CALLERS = 10_000;

/**
 * Failed calls of one address in a second over a longer time; a burst of twice this passes. The burst is what may be in work at
 * once: a valid request counts only while its token is checked, so no number of them is refused. A check takes a tenth of a
 * millisecond.
 */
export const MAX_FAILURES_PER_SECOND = MAX_CONCURRENT_REQUESTS / 2;

/** Addresses whose failures are remembered; the one that was quiet longest is forgotten first. */
export const MAX_ADDRESSES = 10_000;

/** A request is a CSR and an identity. */
export const MAX_REQUEST_BYTES = 64 * 1024;

/** Upstream's backdating, for clocks that run behind (docs/spec/istiod-ambient.md §4.3). */
export const BACKDATE_MS = 120_000;

/** Life of the root the CA makes itself (docs/spec/istiod-ambient.md §4.4). */
export const ROOT_LIFETIME_MS = 3_650 * 86_400_000;

/** Life of the CA's own serving certificate; renewed at half. */
export const SERVING_LIFETIME_MS = 24 * 3_600_000;

/** One line of the pod watch: a pod, as large as the manifest API takes it. */
export const MAX_WATCH_LINE_BYTES = 256 * 1024 * 1024;

/** Between attempts to follow the pods. */
export const WATCH_BACKOFF = { baseMs: 200, maxMs: 5_000 } as const;

/** The pod cache is written at most this often. */
export const CACHE_WRITE_DELAY_MS = 500;

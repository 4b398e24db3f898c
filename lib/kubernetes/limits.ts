/** Bounds of the Kubernetes client, each with its reason. */

/** One answer that is read as a whole: an object, which etcd limits to 1.5 MB, or a short list. */
export const MAX_ANSWER_BYTES = 16 * 1024 * 1024;
/** One object of a list or of a watch. etcd limits a write to 1.5 MB; JSON is at most a few times larger. */
export const MAX_OBJECT_BYTES = 8 * 1024 * 1024;
/** Objects in one page of a list, as client-go asks for. */
export const PAGE_OBJECTS = 500;
/** Objects handed to a sink at once. A sink may do a little work for each. */
export const MAX_BATCH_OBJECTS = 500;
/** Longest time that reading of a list or a watch holds the event loop. */
export const SLICE_MS = 8;
/** An answer that has not begun by then, or stands still for as long, is a failure. */
export const REQUEST_TIMEOUT_MS = 30_000;
/** Attempts of one request. The caller has its own, slower loop where it must not give up. */
export const MAX_ATTEMPTS = 4;
/** Delays between the attempts of a request. */
export const REQUEST_BACKOFF = { baseMs: 100, maxMs: 2_000 } as const;
/** Longest `Retry-After` that a request waits for. */
export const MAX_RETRY_AFTER_MS = 10_000;
/** Files of credentials are read again at this age, like client-go does. Kubelet replaces a token at 80 % of its life. */
export const CREDENTIALS_AGE_MS = 60_000;
/** Credentials of a program are replaced this long before they expire: a request takes time, and clocks differ. */
export const CREDENTIALS_MARGIN_MS = 10_000;
/** A quiet connection is probed after this time; without an answer it ends ten seconds later. */
export const KEEP_ALIVE_MS = 30_000;
/** A watch ends by itself after this time, give or take a third, so that replicas spread over API servers. */
export const WATCH_LIFE_MS = 450_000;
/** A watch that is silent for this long is opened again. Bookmarks come every minute. */
export const WATCH_SILENCE_MS = 150_000;
/** A watch that ends sooner without an event counts as failed, so that it is not opened again at once. */
export const SHORTEST_WATCH_MS = 1_000;
/** Delays after a list or a watch failed. */
export const SOURCE_BACKOFF = { baseMs: 250, maxMs: 30_000 } as const;
/**
 * A list that is empty while objects are held is believed once it has been empty for this long: an API server that lost its store, or
 * is being set up, has no objects for a while.
 */
export const EMPTY_LIST_HOLD_MS = 60_000;
/** Interval of looks for a resource that the API server does not serve. */
export const ABSENT_POLL_MS = 10_000;
/** Expired continue tokens in one list, after which the list counts as failed and is tried with a delay. */
export const MAX_LIST_RESTARTS = 3;
/** Writes under way at once: more would only meet the API server's own limit for a client. */
export const CONCURRENT_WRITES = 4;
/** Delays of a failed write. */
export const WRITE_BACKOFF = { baseMs: 200, maxMs: 30_000 } as const;
/** Attempts of one write before it is dropped and counted. About five minutes. */
export const MAX_WRITE_ATTEMPTS = 16;
/** Time limit for the API server to open a way to a pod. */
export const OPEN_TIMEOUT_MS = 15_000;
/** Largest message that a pod's answer comes in; kubelets copy by 32 KiB. */
export const MAX_MESSAGE_BYTES = 1024 * 1024;
/** Bytes kept of the reason why a port cannot be reached. */
export const MAX_REASON_BYTES = 4_096;
/** Time limit for the program of a kubeconfig that gives credentials; it may ask a person. */
export const CREDENTIALS_TIMEOUT_MS = 120_000;
/** Largest output of that program. */
export const MAX_CREDENTIALS_BYTES = 1024 * 1024;

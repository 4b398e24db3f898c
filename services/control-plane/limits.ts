/** Bounds of the control plane, each with its reason. */

/** Largest manifest file or API request body; a mesh of a hundred thousand pods fits. */
export const MAX_MANIFEST_BYTES = 256 * 1024 * 1024;
/** Manifests up to this size are read on the main thread: 10 ms of YAML, less than a thread takes to start. */
export const MAX_INLINE_BYTES = 16 * 1024;
/** The thread for larger manifests ends after this idle time; the files of one change arrive within it. */
export const READER_IDLE_MS = 2_000;
/** Largest body of a pod's status, which holds a few addresses. */
export const MAX_STATUS_BYTES = 64 * 1024;
/** Objects in one request; a mesh of a hundred thousand pods fits. */
export const MAX_DOCUMENTS = 150_000;
/** Problems reported for one batch; more would not help the reader. */
export const MAX_PROBLEMS = 100;
/** Objects held in memory. A larger mesh needs more than one process and one store. */
export const MAX_OBJECTS = 200_000;
/** Transactions that wait for the store; others are refused as STATE_UNAVAILABLE. */
export const MAX_WAITING_TRANSACTIONS = 10_000;
/** Transactions written with one sync. */
export const MAX_GROUP_COMMIT = 256;
/** Objects or rows in one message between threads, or in one call of a listener: a few milliseconds of the event loop. */
export const MAX_MESSAGE_ROWS = 500;
/** Longest time that work on a large batch holds the event loop; a garbage collection may come in the same turn. */
export const SLICE_MS = 6;
/** The store's write-ahead log is cut back to this size after a large transaction. */
export const MAX_LOG_FILE_BYTES = 16 * 1024 * 1024;
/** Watch streams open at once; each local consumer needs one or two. */
export const MAX_WATCHERS = 256;
/** Characters of a long answer that are written at once: about a socket's buffer. The last object may exceed it. */
export const CHUNK_CHARACTERS = 64 * 1024;
/** Unread bytes at which a slow watcher is cut: the changes of a roll-out of ten thousand pods. It connects again. */
export const MAX_WATCH_BACKLOG_BYTES = 64 * 1024 * 1024;
/** Most files in the manifest directory. */
export const MAX_MANIFEST_FILES = 10_000;
/** Nodes whose enrolments are followed; each needs one reader. */
export const MAX_NODES = 5_000;
/** The store's thread ends after this idle time. Its next start delays one transaction by 30 to 60 ms; while it runs it takes 9 MB. */
export const STORE_IDLE_MS = 10_000;
/** Young generation of the store's thread. The thread keeps no objects; one message of large objects fits. */
export const STORE_YOUNG_GENERATION_MB = 6;
/** Texts that the reduction of objects shares: the labels and names of nodes of a mesh of a hundred thousand pods. */
export const MAX_SHARED_TEXTS = 65_536;
/** Largest body of the admission webhook: an object before and after, which etcd limits to 1.5 MB each, in JSON. */
export const MAX_REVIEW_BYTES = 8 * 1024 * 1024;
/** Parts of objects that the reduction shares: labels, owners and ports of twenty thousand Deployments. */
export const MAX_SHARED_PARTS = 100_000;

/** Bounds of the control plane, each with its reason. */

/** A manifest file or API request body; a whole mesh of a hundred thousand pods fits. */
export const MAX_MANIFEST_BYTES = 256 * 1024 * 1024;
/** Manifests of up to so many bytes are read on the main thread: ten milliseconds of YAML, less than a thread takes to start. */
export const MAX_INLINE_BYTES = 16 * 1024;
/** The thread for larger ones ends when it had nothing to read for so long; files of one change come within it. */
export const READER_IDLE_MS = 2_000;
/** Body of a pod's status: a few addresses. */
export const MAX_STATUS_BYTES = 64 * 1024;
/** Documents of one request, for the same reason. */
export const MAX_DOCUMENTS = 150_000;
/** Problems reported of one batch; more would not help anyone. */
export const MAX_PROBLEMS = 100;
/** Objects held in memory. A larger mesh needs more than one process and one store. */
export const MAX_OBJECTS = 200_000;
/** Requests that wait for the store. Beyond it callers are told to come back. */
export const MAX_WAITING_TRANSACTIONS = 10_000;
/** Transactions written with one sync. */
export const MAX_GROUP_COMMIT = 256;
/** Objects or rows in a message between threads, or told to listeners at once: a few milliseconds of the event loop. */
export const MAX_MESSAGE_ROWS = 500;
/** How long the work on a large batch may hold the event loop. */
export const SLICE_MS = 10;
/** The log of the store's file is cut back to this size after a large transaction. */
export const MAX_LOG_FILE_BYTES = 16 * 1024 * 1024;
/** Watch streams held at once; each local consumer needs one or two. */
export const MAX_WATCHERS = 256;
/** Of a long answer that is written at once; as much as a socket takes. An object may make it longer. */
export const CHUNK_CHARACTERS = 64 * 1024;
/** Bytes of changes a slow watcher may leave unread before it is cut: a roll-out of ten thousand pods. It comes back. */
export const MAX_WATCH_BACKLOG_BYTES = 64 * 1024 * 1024;
/** Files of the manifest directory. */
export const MAX_MANIFEST_FILES = 10_000;
/** Nodes whose enrolments are followed; each costs one reader. */
export const MAX_NODES = 5_000;
/** Young generation of the store's thread, which keeps nothing: one message of large objects fits. */
export const STORE_YOUNG_GENERATION_MB = 6;

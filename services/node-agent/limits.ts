/** Pods that one node may hold: a /20 of addresses. Records beyond it are refused. */
export const MAX_PODS = 4_094;
/** A pod's record is a few hundred bytes; labels and annotations of Kubernetes are at most 256 KiB each. */
export const MAX_RECORD_BYTES = 1_048_576;
/** Pods whose rules are written at the same time: each takes a few processes, and the node has other work. */
export const MAX_RULE_WRITERS = 4;
/** Sets of rules kept to be shared by pods; annotations that ask for something of their own are rare. */
export const MAX_RULE_SETS = 64;
/** Pods looked at in one turn of the event loop by the drift check. */
export const DRIFT_SLICE = 50;
/** Retry of a pod that could not be brought to its state. */
export const RETRY = { baseMs: 200, maxMs: 5_000 } as const;
/** Retry of writes to Redis. */
export const ROWS_RETRY = { baseMs: 100, maxMs: 5_000 } as const;
/** Peers hear within this time that a pod leaves the mesh, and stop sending HBONE before its listeners close. */
export const PEERS_LEARN_MS = 500;
/** Serving a pod anew cuts its connections, so that it is tried rarely when it does not help. */
export const RESTART_SERVING = { baseMs: 10_000, maxMs: 300_000 } as const;

/** Bounds of what the command line asks of a cluster, each with its reason. */

/** Ways to pods at once: each holds a connection of the API server and of a kubelet. */
export const MAX_FORWARDS = 16;
/** Requests that wait for a way; there are a few for each node. */
export const MAX_WAITING_FORWARDS = 100_000;
/** Longest wait for a way; a node that does not answer keeps its own for {@link OPEN_TIMEOUT_MS}. */
export const FORWARD_WAIT_MS = 300_000;

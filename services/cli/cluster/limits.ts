/** Bounds of what the command line asks of a cluster, each with its reason. */

/** Time limit for the API server to open a way to a pod. */
export const OPEN_TIMEOUT_MS = 15_000;
/** Ways to pods at once: each holds a connection of the API server and of a kubelet. */
export const MAX_FORWARDS = 16;
/** Requests that wait for a way; there are a few for each node. */
export const MAX_WAITING_FORWARDS = 100_000;
/** Longest wait for a way; a node that does not answer keeps its own for {@link OPEN_TIMEOUT_MS}. */
export const FORWARD_WAIT_MS = 300_000;
/** Largest message that a pod's answer comes in; kubelets copy by 32 KiB. */
export const MAX_MESSAGE_BYTES = 1024 * 1024;
/** Bytes kept of the reason why a port cannot be reached. */
export const MAX_REASON_BYTES = 4_096;
/** Time limit for the program of a kubeconfig that gives credentials; it may ask a person. */
export const CREDENTIALS_TIMEOUT_MS = 120_000;
/** Largest output of that program. */
export const MAX_CREDENTIALS_BYTES = 1024 * 1024;

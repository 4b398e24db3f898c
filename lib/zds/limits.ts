/** Receive buffer of either side (docs/spec/inpod.md §2): a longer packet is a protocol error. */
export const MAX_PACKET_BYTES = 1_024;
/** Longest text of an Ack; with its framing it fits {@link MAX_PACKET_BYTES}. */
export const MAX_ERROR_BYTES = 960;
/** Time limit of the Hello and of the answer to each message (docs/spec/cni.md §4). */
export const ANSWER_TIMEOUT_MS = 5_000;
/** A proxy without an answer for this long is disconnected; it begins again with a snapshot. */
export const OVERDUE_LIMIT_MS = 30_000;
/** Pause after an accepted connection, which allows 5 per second (docs/spec/cni.md §4). */
export const ACCEPT_INTERVAL_MS = 200;
/** Proxies of one node, draining ones included: at 5 per second all of them are back 13 s after the agent. */
export const MAX_CONNECTIONS = 64;
/** Messages that wait for one proxy: twice a snapshot of the largest node (4094 pods). */
export const MAX_WAITING_MESSAGES = 8_192;
/** Messages that a proxy holds unanswered. The agent sends one at a time; more is a protocol error. */
export const MAX_UNANSWERED = 1;

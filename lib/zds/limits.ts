/** Receive buffer of either side (docs/spec/inpod.md §2): a longer packet is a protocol error. */
export const MAX_PACKET_BYTES = 1_024;
/** Room for the text of an Ack within {@link MAX_PACKET_BYTES}, framing apart. */
export const MAX_ERROR_BYTES = 960;
/** The Hello, and the answer to each message, come within this time (docs/spec/cni.md §4). */
export const ANSWER_TIMEOUT_MS = 5_000;
/** A proxy that owes an answer this long is cut off; it starts anew with a snapshot. */
export const OVERDUE_LIMIT_MS = 30_000;
/** Connections accepted per second are limited by this pause (docs/spec/cni.md §4: 5 per second). */
export const ACCEPT_INTERVAL_MS = 200;
/** Proxies of one node, those that drain included: at five a second all of them are back 13 s after the agent. */
export const MAX_CONNECTIONS = 64;
/** Messages waiting for one proxy: a snapshot of the largest node (4094 pods) and as much again. */
export const MAX_WAITING_MESSAGES = 8_192;
/** Messages a proxy holds unanswered. The agent sends one at a time; more is a protocol error. */
export const MAX_UNANSWERED = 1;

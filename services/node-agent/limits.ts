/** Pods of one node: a /20 of addresses. Records beyond it are refused. */
export const MAX_PODS = 4_094;
/** A pod's record is a few hundred bytes; labels and annotations of Kubernetes are at most 256 KiB each. */
export const MAX_RECORD_BYTES = 1_048_576;
/** Pods whose rules are written at the same time: each takes a few processes, and the node has other work. */
export const MAX_RULE_WRITERS = 4;
/** Sets of rules kept for pods to share; annotations that ask for a special set are rare. */
export const MAX_RULE_SETS = 64;
/** Time that a canary has for its connection, which a proxy of the same pod takes at once. */
export const CANARY_MS = 1_000;
/** Time between two full reads of a pod's rules that show no change. */
export const FULL_CHECK_MS = 60_000;
/** Failed attempts in a row to write rules after which a pod without them is cut off: the first may fail in passing. */
export const CUT_AFTER_FAILURES = 2;
/** The share of a node's pods that may be cut off at once, with those cut off within {@link CUT_WINDOW_MS}; at least one may. */
export const CUT_SHARE = 0.1;
/** Time that {@link CUT_SHARE} is about. */
export const CUT_WINDOW_MS = 60_000;
/** Pods that the drift check looks at in one turn of the event loop. */
export const DRIFT_SLICE = 50;
/** Delays between attempts to bring a pod to its state. */
export const RETRY = { baseMs: 200, maxMs: 5_000 } as const;
/** Delays between attempts to write to Redis. */
export const ROWS_RETRY = { baseMs: 100, maxMs: 5_000 } as const;
/** Peers learn within this time that a pod leaves the mesh, and stop sending HBONE before its listeners close. */
export const PEERS_LEARN_MS = 500;
/** Carried connections have this time when the agent leaves its node for good; it is a part of the agent's own. */
export const LEAVE_DRAIN_MS = 3_000;
/** Time between two attempts to take a pod out of the mesh then. */
export const LEAVE_RETRY_MS = 500;
/** The part of the drain's time in which no such attempt is repeated: the node's own rules and files go last. */
export const LEAVE_REST_MS = 5_000;
/** Delays between restarts of a pod's listeners; each cuts its connections, so they grow while restarts do not help. */
export const RESTART_SERVING = { baseMs: 10_000, maxMs: 300_000 } as const;
/** The same Event of a pod is written again after this time. */
export const EVENT_REPEAT_MS = 300_000;
/** The API server refuses longer messages of Events. */
export const MAX_EVENT_CHARACTERS = 1_024;
/** Time between two looks at whether any rule of the node's own namespace changed: kubelet restarts pods whose probes fail for long. */
export const HOST_RULES_LOOK_MS = {
  generation: 1_000,
  /** It reads all rules, of which other programs may have written tens of thousands. */
  digest: 5_000,
} as const;
/** Time between two full reads of the agent's rules there, which show changes of ipsets too. */
export const HOST_RULES_CHECK_MS = 60_000;
/** Time between two looks for the DaemonSet while the agent takes its pods out of the mesh. A pod of a new agent takes longer to start. */
export const DEPARTURE_LOOK_MS = 2_000;
/** Time for reading the agent's DaemonSet and node when it ends; a pod has 30 s for its end. */
export const DEPARTURE_READ_MS = 8_000;
/** The CNI plugin and weft-runtime take the agent for dead after 5 s (cni/plugin/agent.h); it answers before that in any case. */
export const START_ANSWER_MS = 4_500;
/** A client must send its whole event within this time. */
export const EVENT_READ_MS = 2_000;
/** An event is a few hundred bytes, some for each address, and a container's labels. */
export const MAX_EVENT_BYTES = 65_536;

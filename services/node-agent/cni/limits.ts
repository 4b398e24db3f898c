/** The plugin takes the agent for dead after 5 s (plugin/agent.h); the agent answers before that in any case. */
export const ADD_ANSWER_MS = 4_500;
/** A client must send its whole event within this time. */
export const EVENT_READ_MS = 2_000;
/** An event is a few hundred bytes, and some for each address. */
export const MAX_EVENT_BYTES = 65_536;
/** A pod has a handful of addresses. */
export const MAX_EVENT_ADDRESSES = 64;
/** A list of CNI plugins is a few kilobytes. Larger files belong to no runtime. */
export const MAX_NETWORK_FILE_BYTES = 1_048_576;
/** Time in which changes of a folder are gathered: primary plugins write their files in steps. */
export const INSTALL_DEBOUNCE_MS = 100;
/** Interval of looks at the folders without a reported change. */
export const INSTALL_POLL_MS = 5_000;
/** More rewrites of a list in this time mean that another program fights over it, as istio-cni judges. */
export const CONTEST = { rewrites: 5, withinMs: 5_000 } as const;

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

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
/**
 * Life of the helper's token that is asked for: an agent may be away over a holiday. API servers permit 10 min to 2^32 s, and shorten
 * it to their own maximum (`--service-account-max-token-expiration`, at least 1 h; a day on EKS).
 */
export const HELPER_TOKEN_LIFE_S = 604_800;
/** The helper's token is renewed after this time, or half its life: an account that was made anew has refused the former one since. */
export const HELPER_TOKEN_RENEWAL_MS = 3_600_000;
/** Delays between attempts to renew it. */
export const HELPER_TOKEN_RETRY = { baseMs: 1_000, maxMs: 60_000 } as const;
/** Time for looking up a pod that starts. The rest of START_ANSWER_MS is for its enrolment, and for the answer that nobody can tell. */
export const LOOK_UP_MS = 3_000;

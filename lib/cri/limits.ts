/** A runtime answers within milliseconds; after this time the namespace is looked for in another way. */
export const CALL_TIMEOUT_MS = 2_000;
/** The verbose status of a sandbox has its whole specification, some tens of kilobytes. */
export const MAX_ANSWER_BYTES = 4 * 1024 * 1024;

/** CA calls under way at once (spec/control.md §5.1). */
export const MAX_OUTSTANDING = 8;

/** Results are read within seconds; a node-proxy that was away for longer asks anew. */
export const RESULT_LIFETIME_MS = 600_000;

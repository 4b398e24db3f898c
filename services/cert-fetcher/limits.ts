/** CA calls under way at once (docs/spec/control.md §5.1). */
export const MAX_OUTSTANDING = 8;

/** Lifetime of a result: it is read within seconds, and a node-proxy that was away for longer asks anew. */
export const RESULT_LIFETIME_MS = 600_000;

/** Longest wait of a job for its identity to appear among the node's workloads; it holds one of the slots meanwhile. */
export const IDENTITY_PATIENCE_MS = 300;

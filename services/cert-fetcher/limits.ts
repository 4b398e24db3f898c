/** CA calls under way at once (docs/spec/control.md §5.1). */
export const MAX_OUTSTANDING = 8;

/** Results are read within seconds; a node-proxy that was away for longer asks anew. */
export const RESULT_LIFETIME_MS = 600_000;

/** How long a job waits for its identity to appear among the node's workloads; it holds one of the slots meanwhile. */
export const IDENTITY_PATIENCE_MS = 300;

/** Bounds of the export of telemetry, each with its reason. */

/** Items of a signal that wait for the collector, unless OTEL_BSP_MAX_QUEUE_SIZE or OTEL_BLRP_MAX_QUEUE_SIZE is set: the standard's default. */
export const DEFAULT_QUEUE_ITEMS = 2_048;

/** Largest setting of a queue; an item has about 2 kB. */
export const MAX_QUEUE_ITEMS = 1_000_000;

/** Items of one request: the standard's default, about 300 kB. */
export const DEFAULT_BATCH_ITEMS = 512;

/** Time that items wait for others: the standard's default for spans. */
export const DEFAULT_SPAN_DELAY_MS = 5_000;

/** Time that items wait for others: the standard's default for log records. */
export const DEFAULT_LOG_DELAY_MS = 1_000;

/** Time between exports of metrics: the standard's default. */
export const DEFAULT_METRIC_INTERVAL_MS = 60_000;

/** Time limit of one export, retries included: the standard's default. */
export const DEFAULT_EXPORT_TIMEOUT_MS = 10_000;

/** An export without an outcome counts as failed this long after its time limit. */
export const EXPORT_GRACE_MS = 5_000;

/** Time limit of one source of metrics; without its answer the others are sent. */
export const COLLECT_TIMEOUT_MS = 2_500;

/** Time that the end of a process waits for unsent items. */
export const FLUSH_TIMEOUT_MS = 3_000;

/** Time between two log lines about dropped items. */
export const DROP_LOG_INTERVAL_MS = 60_000;

/** Longest text of an attribute; an error may quote a peer. */
export const MAX_ATTRIBUTE_CHARS = 1_024;

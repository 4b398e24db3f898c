/** Bounds of the export of telemetry, each with its reason. */

/** Items of a signal that wait for the collector, where OTEL_BSP_MAX_QUEUE_SIZE or OTEL_BLRP_MAX_QUEUE_SIZE say nothing else: the standard's default. */
export const DEFAULT_QUEUE_ITEMS = 2_048;

/** Most items a queue may be set to hold, about 2 kB each. */
export const MAX_QUEUE_ITEMS = 1_000_000;

/** Items of one request: the standard's default, some 300 kB. */
export const DEFAULT_BATCH_ITEMS = 512;

/** How long items wait for others before they go: the standard's default for spans. */
export const DEFAULT_SPAN_DELAY_MS = 5_000;

/** The same for log records. */
export const DEFAULT_LOG_DELAY_MS = 1_000;

/** Between exports of metrics: the standard's default. */
export const DEFAULT_METRIC_INTERVAL_MS = 60_000;

/** How long one export may take, retries included: the standard's default. */
export const DEFAULT_EXPORT_TIMEOUT_MS = 10_000;

/** Time beyond that after which an export that tells nothing counts as failed. */
export const EXPORT_GRACE_MS = 5_000;

/** How long one source of metrics may take to tell its own; without it the others are sent. */
export const COLLECT_TIMEOUT_MS = 2_500;

/** How long the end of a process waits for what is still to be sent. */
export const FLUSH_TIMEOUT_MS = 3_000;

/** Between two lines about drops that go on. */
export const DROP_LOG_INTERVAL_MS = 60_000;

/** Longest text of an attribute; an error names its peer's words. */
export const MAX_ATTRIBUTE_CHARS = 1_024;

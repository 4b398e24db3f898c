/** Bounds of the lines that a log holds, each with its reason. */

/** A line of a successful connection waits this long for others. A killed process loses at most these lines. */
export const GATHER_MS = 100;

/** Size of lines that are written together: some twenty access lines, a quarter of a pipe's buffer. */
export const GATHER_BYTES = 16_384;

/** First pause before a reader that took nothing is tried again; it doubles up to {@link GATHER_MS}. */
export const RETRY_MS = 5;

/** Lines of successful connections that may wait for a slow reader: one second of a busy thread. */
export const MAX_GATHERED_BYTES = 2 * 1024 * 1024;

/** Lines of any kind that may wait for it. The difference leaves room for lines of failures. */
export const MAX_HELD_BYTES = 2 * MAX_GATHERED_BYTES;

/** Time between two reports of dropped lines. */
export const DROPPED_LINE_MS = 10_000;

/**
 * Lines of early denials of one pod on one thread: in one burst, and per second. Anybody who reaches a port can cause early
 * denials.
 */
export const DENIAL_LINES_BURST = 100;
/** See {@link DENIAL_LINES_BURST}. */
export const DENIAL_LINES_PER_SECOND = 10;

/** Lines of early denials of all pods of a thread: ten noisy pods. */
export const ALL_DENIAL_LINES_BURST = 10 * DENIAL_LINES_BURST;
/** See {@link ALL_DENIAL_LINES_BURST}. */
export const ALL_DENIAL_LINES_PER_SECOND = 10 * DENIAL_LINES_PER_SECOND;

/** Time from the first line that was left out to the report of their number. */
export const LEFT_OUT_LINE_MS = 1_000;

/** Values of one field whose text is kept, and their length. Peers can name some of them. */
export const MAX_LABELS = 1_024;
/** See {@link MAX_LABELS}. */
export const MAX_LABEL_CHARACTERS = 256;

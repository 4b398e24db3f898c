/** Bounds of what a log holds before it is written, each with its reason. */

/** How long a line of a connection that went well may wait for others: what a killed process loses at most, and no one who watches notices. */
export const GATHER_MS = 100;

/** Lines that are written together: some twenty access lines, a quarter of what a pipe takes. */
export const GATHER_BYTES = 16_384;

/** Before a reader that took nothing is tried again; twice as long each time, {@link GATHER_MS} at most. */
export const RETRY_MS = 5;

/** Lines of connections that went well that may wait for a slow reader: a second of the most a thread opens. */
export const MAX_GATHERED_BYTES = 2 * 1024 * 1024;

/** Lines of any kind that may wait for it, so that there is room for those of failures where there is none for others. */
export const MAX_HELD_BYTES = 2 * MAX_GATHERED_BYTES;

/** Between two lines that say that lines were dropped. */
export const DROPPED_LINE_MS = 10_000;

/**
 * Lines of connections that were refused before they were understood: in one burst, and per second, of one pod on
 * one thread. Whoever reaches a port can cause them.
 */
export const DENIAL_LINES_BURST = 100;
/** See {@link DENIAL_LINES_BURST}. */
export const DENIAL_LINES_PER_SECOND = 10;

/** Those of all pods of a thread: ten noisy ones. */
export const ALL_DENIAL_LINES_BURST = 10 * DENIAL_LINES_BURST;
/** See {@link ALL_DENIAL_LINES_BURST}. */
export const ALL_DENIAL_LINES_PER_SECOND = 10 * DENIAL_LINES_PER_SECOND;

/** After the first that was left out, before it is said how many were. */
export const LEFT_OUT_LINE_MS = 1_000;

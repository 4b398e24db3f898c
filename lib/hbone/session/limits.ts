/** Bounds of a session, each with its reason. ../limits.ts has the bounds that hold for any engine; the addon has those of bytes. */

/** HPACK table of the decoder: HTTP/2's default, so that no setting has to announce it. */
export const DECODER_TABLE_BYTES = 4_096;

/** Window of a stream while its pod is pressed (lib/net/held-bytes.ts), bytes: enough to make progress. */
export const PRESSED_WINDOW_BYTES = 16_384;

/** Ended streams that are remembered, to tell late frames from wrong ones. */
export const MAX_REMEMBERED_STREAMS = 1_000;

/**
 * Frames without progress that a peer may send in one burst, and per second: PING, SETTINGS, PRIORITY, resets and headers of ended
 * streams, requests after a drain, malformed requests. Honest peers send a few a minute.
 */
export const IDLE_FRAMES = { burst: 10_000, perSecond: 1_000 } as const;

/** CONTINUATION frames of one header block; 64 KiB need four of the smallest maximum size. */
export const MAX_CONTINUATIONS = 64;

/** Bounds of the framing engine, each with its reason. ../limits.ts has the bounds that hold for any engine. */

/** HPACK table of the decoder: HTTP/2's default, so that no setting has to announce it. */
export const DECODER_TABLE_BYTES = 4_096;

/** Settings in one frame. Six exist; peers may send unknown ones (GREASE). */
export const MAX_SETTINGS_PER_FRAME = 64;

/** Largest GOAWAY with its debug data, bytes. */
export const MAX_GOAWAY_BYTES = 16_384;

/**
 * Unread bytes of all streams of a tunnel up to which the connection window is given back on arrival. Up to it a stalled reader uses up
 * only its own stream window. Beyond it the connection window bounds the bytes held.
 */
export const MAX_HELD_BYTES = 64 * 1_048_576;

/** Window of a stream while its pod is pressed (lib/net/held-bytes.ts), bytes: enough to make progress. */
export const PRESSED_WINDOW_BYTES = 16_384;

/** A window is given back when one part in this many is used up: few frames, and the sender never has to wait. */
export const RELEASE_SHARE = 4;

/** Bytes of frames other than DATA that may wait for a peer that does not read. Honest peers leave a few kB unread. */
export const MAX_CONTROL_BYTES = 1_048_576;

/**
 * Largest write, bytes: eight full TLS records. Later frames cannot overtake a write, so this bounds the delay that a bulk stream causes
 * the others.
 */
export const WRITE_BYTES = 131_072;

/** A stream's turn while others wait, bytes with the frame header: one TLS record. */
export const TURN_BYTES = 16_384;

/** Bytes of a stream that may wait before its source is stopped. */
export const SEND_HIGH_WATER_BYTES = 262_144;

/** Waiting bytes at which a stopped source continues: enough for one write until it delivers. */
export const SEND_LOW_WATER_BYTES = 131_072;

/** Smaller received pieces are gathered while their reader is stalled, because a piece costs more than its bytes. */
export const SMALL_PIECE_BYTES = 2_048;

/** Buffer in which small pieces are gathered. */
export const GATHER_BYTES = 16_384;

/** Ended streams that are remembered, to tell late frames from wrong ones. */
export const MAX_REMEMBERED_STREAMS = 1_000;

/**
 * Frames without progress that a peer may send in one burst, and per second: PING, SETTINGS, PRIORITY, empty DATA, unknown frames, resets
 * and headers of ended streams, requests after a drain, malformed requests. Honest peers send a few a minute.
 */
export const IDLE_FRAMES = { burst: 10_000, perSecond: 1_000 } as const;

/** WINDOW_UPDATEs that a peer may send for each KiB it received, besides a budget as for the frames above. */
export const WINDOW_UPDATES_PER_KIB = 2;

/** CONTINUATION frames of one header block; 64 KiB need four of the smallest maximum size. */
export const MAX_CONTINUATIONS = 64;

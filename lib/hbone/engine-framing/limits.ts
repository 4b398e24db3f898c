/** Bounds of the framing engine, each with its reason. Those it shares with the other engine are in ../limits.ts. */

/** Our HPACK table for what the peer sends: HTTP/2's default, so that no setting has to announce it. */
export const DECODER_TABLE_BYTES = 4_096;

/** Settings in one frame: six exist, and peers may grease. */
export const MAX_SETTINGS_PER_FRAME = 64;

/** Debug data of a GOAWAY that we take in, bytes. */
export const MAX_GOAWAY_BYTES = 16_384;

/**
 * Unread bytes of all streams of a tunnel up to which the connection window is given back on arrival. Stalled readers then
 * hold their own stream windows and nothing of the others'; beyond it the connection window bounds what is held.
 */
export const MAX_HELD_BYTES = 64 * 1_048_576;

/** Window of a stream while its pod holds too much (lib/net/held-bytes.ts), bytes: enough to go on. */
export const PRESSED_WINDOW_BYTES = 16_384;

/** Share of a window that is used up before it is given back: few frames, and the sender never runs dry. */
export const RELEASE_SHARE = 4;

/** Bytes of frames other than DATA that may wait for a peer that does not read. Honest peers leave a few kB. */
export const MAX_CONTROL_BYTES = 1_048_576;

/**
 * One write at most, bytes: eight full TLS records. What is handed over cannot be overtaken, so this bounds what a bulk
 * stream costs the others.
 */
export const WRITE_BYTES = 131_072;

/** A stream's turn when others wait too, bytes with the frame header: one TLS record. */
export const TURN_BYTES = 16_384;

/** Bytes a stream may have waiting before its source is told to stop. */
export const SEND_HIGH_WATER_BYTES = 262_144;

/** Waiting bytes at which a stopped source is told to go on: enough to fill a write until it does. */
export const SEND_LOW_WATER_BYTES = 131_072;

/** A TLS record's content at most, bytes. */
export const RECORD_BYTES = 16_384;

/** A record of at least this says that more will follow: the next are put one behind the other. */
export const BULK_READ_BYTES = 8_192;

/** Room for records that are written on together: those of one turn of a busy tunnel. */
export const SLAB_BYTES = 262_144;

/** Bytes received in one turn that are written to a socket by one call: four TLS records, less the frame header before them. */
export const GATHERED_BYTES = 65_000;

/** A read of at least this was part of a bulk transfer: the next one waits until it is sent, and is then sent without a copy. */
export const DIRECT_PAUSE_BYTES = 32_768;

/** Pieces below this that wait behind others are copied: each would keep a buffer of the size above to itself. */
export const PIN_FROM_BYTES = 32_768;

/** Received pieces below this are gathered while their reader is stalled: a piece costs more than its bytes. */
export const SMALL_PIECE_BYTES = 2_048;

/** Buffer in which small pieces are gathered. */
export const GATHER_BYTES = 16_384;

/** Ids of ended streams that are remembered, to tell late frames from wrong ones. */
export const MAX_REMEMBERED_STREAMS = 1_000;

/**
 * Frames that move nothing forward (PING, SETTINGS, PRIORITY, empty DATA, unknown ones, resets and headers of ended streams,
 * requests after a drain, malformed ones): in one burst, and per second. Honest peers send a few a minute.
 */
export const IDLE_FRAMES = { burst: 10_000, perSecond: 1_000 } as const;

/** WINDOW_UPDATEs that a peer may send for each KiB it was sent, besides as many as of the frames above. */
export const WINDOW_UPDATES_PER_KIB = 2;

/** CONTINUATION frames of one header block; 64 KiB need four of the smallest maximum size. */
export const MAX_CONTINUATIONS = 64;

/** Bounds of the DNS codec and the answer cache, each with its reason. */

/** A name is at most 255 octets with its lengths (RFC 1035 §2.3.4). */
export const MAX_NAME_BYTES = 255;

/** Largest UDP answer to a query without EDNS (RFC 1035 §2.3.4). */
export const MIN_UDP_BYTES = 512;

/** Largest message that TCP framing carries. */
export const MAX_TCP_BYTES = 65_535;

/** Largest UDP payload of IPv4: 65,535 less the headers. */
export const MAX_UDP_BYTES = 65_507;

/** Records read of one message; the largest message holds fewer. */
export const MAX_RECORDS = 6_000;

/**
 * Names that one question asks of the mesh state at once. The common question of three labels needs nine; a request to the state
 * thread may have 256.
 */
export const CANDIDATES_PER_ROUND = 64;

/** Bytes of remembered upstream answers: of one pod altogether, and of the largest answer that is kept. */
export const MAX_CACHE_BYTES = 256 * 1_024;
export const MAX_CACHED_ANSWER_BYTES = 4_096;

/** Longest time an answer is remembered, whatever lifetimes its records state. */
export const MAX_CACHE_SECONDS = 86_400;

/** Aliases followed from one name. Real chains have two or three; a loop must end. */
export const MAX_ALIASES = 8;

/** Name servers used, as in glibc; it ignores further ones. */
export const MAX_NAME_SERVERS = 3;

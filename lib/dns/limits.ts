/** Bounds of the DNS codec and of what is remembered, each with its reason. */

/** A name is at most 255 octets with its lengths (RFC 1035 §2.3.4). */
export const MAX_NAME_BYTES = 255;

/** Without EDNS a UDP answer has at most this (RFC 1035 §2.3.4). */
export const MIN_UDP_BYTES = 512;

/** Largest message that TCP framing carries. */
export const MAX_TCP_BYTES = 65_535;

/** Largest UDP payload of IPv4: 65,535 less the headers. */
export const MAX_UDP_BYTES = 65_507;

/** Records of one message that are looked at; one of the largest size holds fewer. */
export const MAX_RECORDS = 6_000;

/**
 * Names asked of the mesh state at once for one question: the common question of three labels needs nine, and a request
 * to the state thread may have 256.
 */
export const CANDIDATES_PER_ROUND = 64;

/** Remembered answers of upstream resolvers of one pod: all together, and the largest that is kept. */
export const MAX_CACHE_BYTES = 256 * 1_024;
export const MAX_CACHED_ANSWER_BYTES = 4_096;

/** An answer is remembered at most this long, whatever its records say. */
export const MAX_CACHE_SECONDS = 86_400;

/** Aliases followed from one name: real chains have two or three, and a loop must end. */
export const MAX_ALIASES = 8;

/** As glibc: more name servers are ignored. */
export const MAX_NAME_SERVERS = 3;

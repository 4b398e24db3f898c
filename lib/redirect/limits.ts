/** Time limit of one batch of commands in a pod; a healthy one takes tens of milliseconds. */
export const COMMAND_TIMEOUT_MS = 10_000;
/** Time limit of listing and ending all connections of a pod, which may be a hundred thousand. */
export const LISTING_TIMEOUT_MS = 30_000;
/** Time that iptables waits for the lock of another writer before the batch fails. */
export const LOCK_WAIT_SECONDS = 5;
/** Longest output of a batch, rules of others included; the batch fails beyond it. */
export const MAX_OUTPUT_BYTES = 4 * 1024 * 1024;
/** Sets of rules whose listing by nft is kept; annotations that ask for a special set are rare. */
export const MAX_NATIVE_LISTINGS = 128;
/** Characters of the error output that the message keeps, from its beginning. */
export const MAX_ERROR_CHARACTERS = 1_000;

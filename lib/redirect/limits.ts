/** Longest that one batch of commands in a pod may take; a healthy one takes tens of milliseconds. */
export const COMMAND_TIMEOUT_MS = 10_000;
/** How long iptables waits for the lock of another writer before the batch fails. */
export const LOCK_WAIT_SECONDS = 5;
/** Rules of others in a pod count too; beyond this the output is not read to its end and the batch fails. */
export const MAX_OUTPUT_BYTES = 4 * 1024 * 1024;
/** Of the error output only the beginning is kept, for the message. */
export const MAX_ERROR_CHARACTERS = 1_000;

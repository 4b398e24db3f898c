/** SHA-256 as a function of plain data, so that pure code need not import Node's modules. */
import { hash } from 'node:crypto';

const DIGEST_BYTES = 32;
const scratch = Buffer.alloc(DIGEST_BYTES);

/** Returns the lower-case hexadecimal SHA-256 of the bytes, or of the UTF-8 form of the text. */
export function sha256Hex(data: Uint8Array | string): string {
  return hash('sha256', data, 'hex');
}

/**
 * Returns the first `bytes` bytes of the SHA-256 as lower-case hexadecimal. Unlike a slice it keeps no longer text alive. It makes
 * no object that a garbage collection has to call back for, because the control plane hashes a hundred thousand resources at once.
 */
export function sha256Prefix(data: Uint8Array | string, bytes: number): string {
  scratch.write(hash('sha256', data, 'latin1'), 'latin1');
  return scratch.toString('hex', 0, bytes);
}

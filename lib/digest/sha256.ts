/** SHA-256 as a function of plain data, so that pure code need not import Node's modules. */
import { createHash } from 'node:crypto';

/** Returns the lower-case hexadecimal SHA-256 of the bytes, or of the UTF-8 form of the text. */
export function sha256Hex(data: Uint8Array | string): string {
  return createHash('sha256').update(data).digest('hex');
}

/** Returns the first `bytes` bytes of the SHA-256 as lower-case hexadecimal. Unlike a slice it keeps no longer text alive. */
export function sha256Prefix(data: Uint8Array | string, bytes: number): string {
  return createHash('sha256').update(data).digest().toString('hex', 0, bytes);
}

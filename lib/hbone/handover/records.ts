/** Records of TLS (RFC 8446 §5) and the keys that protect them. */
import { createDecipheriv, createHmac } from 'node:crypto';
import type { CipherGCMTypes, DecipherGCM } from 'node:crypto';

/** Length of the header of a record. */
export const RECORD_HEADER_BYTES = 5;

/** Types of records. Encrypted ones have the last type, whatever they contain. */
export const RECORD_TYPE = { changeCipherSpec: 20, applicationData: 23 } as const;

/** Largest content of a record: 2^14 bytes and 256 of the cipher. */
const MAX_CONTENT_BYTES = 16_640;

const MAJOR_VERSION = 3;
const TAG_BYTES = 16;
const NONCE_BYTES = 12;

/** The suites of TLS 1.3 that can be carried outside of OpenSSL, by their standard name. */
export const SUITES = {
  TLS_AES_128_GCM_SHA256: { cipher: 'aes-128-gcm', hash: 'sha256', keyBytes: 16, secretBytes: 32 },
  TLS_AES_256_GCM_SHA384: { cipher: 'aes-256-gcm', hash: 'sha384', keyBytes: 32, secretBytes: 48 },
  TLS_CHACHA20_POLY1305_SHA256: {
    cipher: 'chacha20-poly1305',
    hash: 'sha256',
    keyBytes: 32,
    secretBytes: 32,
  },
} as const;

/** The name of such a suite. */
export type SuiteName = keyof typeof SUITES;

/** Whether a suite can be carried outside of OpenSSL. */
export function isSuite(name: string): name is SuiteName {
  return Object.hasOwn(SUITES, name);
}

/** Returns the length of the record that begins the bytes, header included; null when more bytes are needed to tell. */
export function recordLength(bytes: Buffer): number | 'not-tls' | null {
  const [type, major] = bytes;
  if (type === undefined) return null;
  if (type < RECORD_TYPE.changeCipherSpec || type > RECORD_TYPE.applicationData) return 'not-tls';
  if (major !== undefined && major !== MAJOR_VERSION) return 'not-tls';
  if (bytes.length < RECORD_HEADER_BYTES) return null;
  const content = bytes.readUInt16BE(3);
  return content > MAX_CONTENT_BYTES ? 'not-tls' : RECORD_HEADER_BYTES + content;
}

/**
 * Counts the records written under a traffic secret. They must be the last ones and numbered from 0; each is verified. Throws an Error
 * when they are not.
 */
export function countRecords(records: readonly Buffer[], suite: SuiteName, secret: Buffer): number {
  const { hash, keyBytes } = SUITES[suite];
  const key = expandLabel(hash, secret, 'key', keyBytes);
  const iv = expandLabel(hash, secret, 'iv', NONCE_BYTES);
  try {
    const first = records.findIndex((record) => isAuthentic(record, suite, key, iv));
    if (first === -1) return 0;
    records.slice(first).forEach((record, sequence) => {
      if (isAuthentic(record, suite, key, nonce(iv, sequence))) return;
      throw new Error(`record ${sequence} under the application key is not as expected`);
    });
    return records.length - first;
  } finally {
    key.fill(0);
    iv.fill(0);
  }
}

/** HKDF-Expand-Label without a context (RFC 8446 §7.1), for at most one block of the hash. */
function expandLabel(hash: string, secret: Buffer, label: string, bytes: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`, 'latin1');
  const info = Buffer.concat([Buffer.from([0, bytes, name.length]), name, Buffer.from([0, 1])]);
  return createHmac(hash, secret).update(info).digest().subarray(0, bytes);
}

function nonce(iv: Buffer, sequence: number): Buffer {
  const result = Buffer.from(iv);
  result.writeUInt32BE((result.readUInt32BE(NONCE_BYTES - 4) ^ sequence) >>> 0, NONCE_BYTES - 4);
  return result;
}

function isAuthentic(record: Buffer, suite: SuiteName, key: Buffer, iv: Buffer): boolean {
  if (record.length < RECORD_HEADER_BYTES + TAG_BYTES) return false;
  // The type checker knows ChaCha20 by another interface, which has the same methods.
  const cipher = SUITES[suite].cipher as CipherGCMTypes;
  const decipher: DecipherGCM = createDecipheriv(cipher, key, iv, { authTagLength: TAG_BYTES });
  decipher.setAAD(record.subarray(0, RECORD_HEADER_BYTES));
  decipher.setAuthTag(record.subarray(-TAG_BYTES));
  decipher.update(record.subarray(RECORD_HEADER_BYTES, -TAG_BYTES)).fill(0);
  try {
    decipher.final();
    return true;
  } catch {
    return false;
  }
}

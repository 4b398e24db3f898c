/** A TLS 1.3 record layer of its own, over node:crypto: reads what was sent, and goes on with a connection that has left node:tls. */
import { createCipheriv, createDecipheriv, createHmac } from 'node:crypto';
import type { CipherGCMTypes } from 'node:crypto';

const SUITES: Record<string, { cipher: string; hash: string; keyBytes: number }> = {
  TLS_AES_128_GCM_SHA256: { cipher: 'aes-128-gcm', hash: 'sha256', keyBytes: 16 },
  TLS_AES_256_GCM_SHA384: { cipher: 'aes-256-gcm', hash: 'sha384', keyBytes: 32 },
  TLS_CHACHA20_POLY1305_SHA256: { cipher: 'chacha20-poly1305', hash: 'sha256', keyBytes: 32 },
};
const HEADER_BYTES = 5;
const TAG_BYTES = 16;

/** The content and the inner type of a record. */
export interface Opened {
  readonly type: number;
  readonly content: Buffer;
}

/** One direction of a connection. */
export class RecordKeys {
  readonly #cipher: CipherGCMTypes;
  readonly #key: Buffer;
  readonly #iv: Buffer;

  constructor(suite: string, secret: Buffer) {
    const known = SUITES[suite];
    if (known === undefined) throw new Error(`unknown suite ${suite}`);
    this.#cipher = known.cipher as CipherGCMTypes;
    this.#key = expand(known.hash, secret, 'key', known.keyBytes);
    this.#iv = expand(known.hash, secret, 'iv', 12);
  }

  /** Opens a whole record; null when it was not sealed under this key and sequence number. */
  open(record: Buffer, sequence: number): Opened | null {
    const decipher = createDecipheriv(this.#cipher, this.#key, this.#nonce(sequence), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(record.subarray(0, HEADER_BYTES));
    decipher.setAuthTag(record.subarray(-TAG_BYTES));
    const inner = decipher.update(record.subarray(HEADER_BYTES, -TAG_BYTES));
    try {
      decipher.final();
    } catch {
      return null;
    }
    let end = inner.length;
    while (end > 0 && inner[end - 1] === 0) end -= 1;
    return { type: inner[end - 1] ?? 0, content: inner.subarray(0, end - 1) };
  }

  /** Seals application data. */
  seal(content: Buffer, sequence: number): Buffer {
    const inner = Buffer.concat([content, Buffer.from([23])]);
    const header = Buffer.from([23, 3, 3, 0, 0]);
    header.writeUInt16BE(inner.length + TAG_BYTES, 3);
    const cipher = createCipheriv(this.#cipher, this.#key, this.#nonce(sequence), {
      authTagLength: TAG_BYTES,
    });
    cipher.setAAD(header);
    return Buffer.concat([header, cipher.update(inner), cipher.final(), cipher.getAuthTag()]);
  }

  #nonce(sequence: number): Buffer {
    const counter = Buffer.alloc(12);
    counter.writeUIntBE(sequence, 6, 6);
    return Buffer.from(this.#iv.map((byte, index) => byte ^ (counter[index] ?? 0)));
  }
}

/** Cuts bytes into whole records; the rest is left out. */
export function cutRecords(bytes: Buffer): Buffer[] {
  const records: Buffer[] = [];
  let at = 0;
  while (bytes.length - at >= HEADER_BYTES) {
    const end = at + HEADER_BYTES + bytes.readUInt16BE(at + 3);
    if (end > bytes.length) break;
    records.push(bytes.subarray(at, end));
    at = end;
  }
  return records;
}

/** HKDF-Expand-Label (RFC 8446 §7.1) in one block. node:crypto expands only together with HKDF-Extract. */
function expand(hash: string, secret: Buffer, label: string, bytes: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`);
  const info = Buffer.concat([Buffer.from([0, bytes, name.length]), name, Buffer.from([0])]);
  const block = Buffer.concat([info, Buffer.from([1])]);
  return createHmac(hash, secret).update(block).digest().subarray(0, bytes);
}

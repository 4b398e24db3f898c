/** Numbers and structure of DNS messages (RFC 1035 §4). Pure. No function here throws, whatever the bytes are. */
import { MAX_NAME_BYTES } from './limits.ts';

/** Octets of the fixed header. */
export const HEADER_BYTES = 12;

/** Record types that the mesh reads. */
export const TYPE = { A: 1, CNAME: 5, SOA: 6, AAAA: 28, OPT: 41 } as const;

/** The class of the internet. */
export const CLASS_IN = 1;

/** Response codes that the mesh gives or reads. */
export const RCODE = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3 } as const;

/** One of {@link RCODE}. */
export type Rcode = (typeof RCODE)[keyof typeof RCODE];

/** Bits of the second 16-bit word. */
export const FLAG = {
  RESPONSE: 0x8000,
  AUTHORITATIVE: 0x0400,
  TRUNCATED: 0x0200,
  RECURSION_DESIRED: 0x0100,
  RECURSION_AVAILABLE: 0x0080,
  CHECKING_DISABLED: 0x0010,
} as const;

/** The opcode of an ordinary query. */
export const OPCODE_QUERY = 0;

/** Offsets and numbers of one record. */
export interface RecordPlace {
  /** Offset of the record's name. */
  readonly nameAt: number;
  readonly type: number;
  readonly class: number;
  readonly ttlAt: number;
  readonly dataAt: number;
  readonly dataLength: number;
  /** Offset of the next record. */
  readonly end: number;
}

/** Opcode of a message with a whole header. */
export function opcodeOf(message: Buffer): number {
  return (message.readUInt16BE(2) >> 11) & 0xf;
}

/** Response code of a message with a whole header. */
export function rcodeOf(message: Buffer): number {
  return message.readUInt16BE(2) & 0xf;
}

/** The offset behind a name, null when the name is malformed. It does not follow a compression pointer. */
export function skipName(message: Buffer, start: number): number | null {
  let at = start;
  while (at - start < MAX_NAME_BYTES) {
    const length = message[at];
    if (length === undefined) return null;
    if (length === 0) return at + 1;
    if (length >= 0xc0) return at + 2 <= message.length ? at + 2 : null;
    // No resolver uses the label types 0x40 and 0x80.
    if (length > 63) return null;
    at += 1 + length;
  }
  return null;
}

/** A name in lower case, without a trailing dot; null when it is malformed. Each pointer must lead back, so that reading ends. */
export function readName(message: Buffer, start: number): string | null {
  const labels: string[] = [];
  let at = start;
  let earliest = start;
  let characters = 0;
  for (;;) {
    const length = message[at];
    if (length === undefined) return null;
    if (length === 0) return labels.join('.');
    if (length >= 0xc0) {
      const low = message[at + 1];
      const to = ((length & 0x3f) << 8) | (low ?? 0);
      if (low === undefined || to >= earliest) return null;
      earliest = to;
      at = to;
      continue;
    }
    characters += length + 1;
    if (length > 63 || characters >= MAX_NAME_BYTES || at + 1 + length > message.length)
      return null;
    labels.push(message.toString('latin1', at + 1, at + 1 + length).toLowerCase());
    at += 1 + length;
  }
}

/** The record at an offset, null when it is incomplete. */
export function recordAt(message: Buffer, start: number): RecordPlace | null {
  const at = skipName(message, start);
  if (at === null || at + 10 > message.length) return null;
  const dataLength = message.readUInt16BE(at + 8);
  const end = at + 10 + dataLength;
  if (end > message.length) return null;
  return {
    nameAt: start,
    type: message.readUInt16BE(at),
    class: message.readUInt16BE(at + 2),
    ttlAt: at + 4,
    dataAt: at + 10,
    dataLength,
    end,
  };
}

/** A name in wire form. Each label must have 1 to 63 ASCII characters, as in the names that parseRequest returns. */
export function encodeName(name: string): Buffer {
  const parts = name.split('.').map((label) => {
    const bytes = Buffer.from(label, 'latin1');
    return Buffer.concat([Buffer.of(bytes.length), bytes]);
  });
  return Buffer.concat([...parts, Buffer.of(0)]);
}

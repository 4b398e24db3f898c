/** Reads a client's message as far as the mesh needs it; the rest is carried unchanged. */
import { MAX_NAME_BYTES, MAX_RECORDS } from './limits.ts';
import { FLAG, HEADER_BYTES, OPCODE_QUERY, RCODE, TYPE, opcodeOf, recordAt } from './wire.ts';
import type { Rcode } from './wire.ts';

/** The one question of a query. */
export interface Question {
  /**
   * Lower case, without a trailing dot. Null for the root and for names with characters that no host name has: nothing in the mesh
   * has such a name.
   */
  readonly name: string | null;
  readonly type: number;
  readonly class: number;
  /** Offset of the end of the question in the message; it begins after the header. */
  readonly end: number;
}

/** The contents of the query's OPT record (RFC 6891 §6.1). */
export interface Edns {
  readonly payload: number;
  readonly version: number;
  readonly dnssecOk: boolean;
}

/** A query that can be answered or forwarded. */
export interface Query {
  readonly question: Question;
  readonly edns: Edns | null;
}

/** A client's message, by what can be done with it. */
export type Request =
  | { readonly kind: 'query'; readonly query: Query }
  /** Another opcode; only an upstream server knows its meaning. */
  | { readonly kind: 'opaque' }
  /** Malformed; the answer is this code. */
  | { readonly kind: 'invalid'; readonly rcode: Rcode }
  /** Too short to be answered. */
  | { readonly kind: 'unanswerable' };

/** Longest host name in text: 255 octets less the first length and the root. */
const MAX_NAME_CHARACTERS = 253;
const HOST_NAME = /^[a-z0-9_*-]{1,63}(?:\.[a-z0-9_*-]{1,63})*$/;
const HOST_CHARACTERS = /^[a-z0-9_*-]+$/;
const INVALID: Request = { kind: 'invalid', rcode: RCODE.FORMERR };

/** Whether a lower-case text without a trailing dot is a host name. */
export function isHostName(name: string): boolean {
  return name.length <= MAX_NAME_CHARACTERS && HOST_NAME.test(name);
}

/** Reads a message of any bytes; never throws. */
export function parseRequest(message: Buffer): Request {
  if (message.length < HEADER_BYTES) return { kind: 'unanswerable' };
  const flags = message.readUInt16BE(2);
  if ((flags & FLAG.RESPONSE) !== 0) return INVALID;
  if (opcodeOf(message) !== OPCODE_QUERY) return { kind: 'opaque' };
  if (message.readUInt16BE(4) !== 1) return INVALID;
  const question = questionAt(message, HEADER_BYTES);
  if (question === null) return INVALID;
  const edns = ednsOf(message, question.end);
  return edns === 'broken' ? INVALID : { kind: 'query', query: { question, edns } };
}

/** The question at an offset, null when it is not whole or compressed. */
export function questionAt(message: Buffer, start: number): Question | null {
  const labels: string[] = [];
  let at = start;
  for (;;) {
    const length = message[at];
    if (length === undefined || length > 63) return null;
    at += 1;
    if (length === 0) break;
    if (at + length > message.length || at + length - start >= MAX_NAME_BYTES) return null;
    labels.push(message.toString('latin1', at, at + length).toLowerCase());
    at += length;
  }
  if (at + 4 > message.length) return null;
  const plain = labels.length > 0 && labels.every((label) => HOST_CHARACTERS.test(label));
  return {
    name: plain ? labels.join('.') : null,
    type: message.readUInt16BE(at),
    class: message.readUInt16BE(at + 2),
    end: at + 4,
  };
}

/** The first OPT record; `broken` when a record is not whole. */
function ednsOf(message: Buffer, start: number): Edns | null | 'broken' {
  const count = message.readUInt16BE(6) + message.readUInt16BE(8) + message.readUInt16BE(10);
  if (count > MAX_RECORDS) return 'broken';
  let edns: Edns | null = null;
  let at = start;
  for (let index = 0; index < count; index += 1) {
    const record = recordAt(message, at);
    if (record === null) return 'broken';
    if (record.type === TYPE.OPT && edns === null) {
      edns = {
        payload: record.class,
        version: message[record.ttlAt + 1] ?? 0,
        dnssecOk: ((message[record.ttlAt + 2] ?? 0) & 0x80) !== 0,
      };
    }
    at = record.end;
  }
  return edns;
}

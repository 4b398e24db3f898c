/** Reads answers of upstream resolvers and decides which to believe (docs/spec/dns.md §5). Pure. */
import { formatIp } from '../net/address.ts';
import { MAX_ALIASES, MAX_CACHE_SECONDS, MAX_RECORDS, MAX_UDP_BYTES } from './limits.ts';
import { questionAt } from './request.ts';
import {
  CLASS_IN,
  FLAG,
  HEADER_BYTES,
  OPCODE_QUERY,
  RCODE,
  TYPE,
  encodeName,
  opcodeOf,
  rcodeOf,
  readName,
  recordAt,
} from './wire.ts';
import type { RecordPlace } from './wire.ts';

/** How long an answer may be remembered, and the offsets of its lifetimes. */
export interface Lifetime {
  readonly seconds: number;
  readonly ttlsAt: readonly number[];
}

/**
 * Whether a message answers the question sent: it must have the same id, opcode and question. The socket compares the sender's
 * address and port.
 */
export function answers(question: Buffer, message: Buffer): boolean {
  if (message.length < HEADER_BYTES) return false;
  if (message.readUInt16BE(0) !== question.readUInt16BE(0)) return false;
  if ((message.readUInt16BE(2) & FLAG.RESPONSE) === 0) return false;
  if (opcodeOf(message) !== opcodeOf(question)) return false;
  if (opcodeOf(question) !== OPCODE_QUERY) return true;
  const count = message.readUInt16BE(4);
  // A server that cannot read a question may leave it out of its refusal.
  if (count === 0) return rcodeOf(message) !== RCODE.NOERROR && rcodeOf(message) !== RCODE.NXDOMAIN;
  return count === 1 && sameQuestion(question, message);
}

/** The answer as the client gets it: with the client's id, not authoritative, with recursion available. The rest stays unchanged. */
export function relayed(answer: Buffer, id: number): Buffer {
  const message = Buffer.from(answer);
  message.writeUInt16BE(id, 0);
  if (opcodeOf(message) !== OPCODE_QUERY) return message;
  const flags = message.readUInt16BE(2);
  message.writeUInt16BE((flags & ~FLAG.AUTHORITATIVE) | FLAG.RECURSION_AVAILABLE, 2);
  return message;
}

/** The answer's lifetime. Null when the answer must not be remembered: truncated, an error, without lifetime or malformed (RFC 2308 §5). */
export function lifetimeOf(answer: Buffer): Lifetime | null {
  if (isTruncated(answer)) return null;
  const rcode = rcodeOf(answer);
  if (rcode !== RCODE.NOERROR && rcode !== RCODE.NXDOMAIN) return null;
  const records = recordsOf(answer);
  if (records === null) return null;
  const positive = rcode === RCODE.NOERROR && answer.readUInt16BE(6) > 0;
  const soa = records.find((record) => record.type === TYPE.SOA);
  if (!positive && soa === undefined) return null;
  const living = records.filter((record) => record.type !== TYPE.OPT);
  const ttls = living.map(({ ttlAt }) => answer.readUInt32BE(ttlAt));
  if (!positive && soa !== undefined) ttls.push(negativeTtl(answer, soa));
  const seconds = Math.min(MAX_CACHE_SECONDS, ...ttls);
  return seconds < 1 ? null : { seconds, ttlsAt: living.map(({ ttlAt }) => ttlAt) };
}

/** The addresses of one type in an answer; none when the answer is malformed. */
export function addressesIn(answer: Buffer, type: typeof TYPE.A | typeof TYPE.AAAA): string[] {
  return addressesOf(answer, answerRecords(answer), type);
}

/**
 * Follows a lower-case name's aliases within an answer, to the addresses at their end. Without addresses `alias` is the name at the
 * end, whose addresses must be asked for; it is null if there is no alias.
 */
export function followAliases(
  answer: Buffer,
  name: string,
  type: typeof TYPE.A | typeof TYPE.AAAA,
): { readonly addresses: readonly string[]; readonly alias: string | null } {
  const records = answerRecords(answer).map((record) => ({
    ...record,
    owner: readName(answer, record.nameAt),
  }));
  let owner = name;
  for (let hops = 0; hops <= MAX_ALIASES; hops += 1) {
    const own = records.filter((record) => record.owner === owner);
    const addresses = addressesOf(answer, own, type);
    if (addresses.length > 0) return { addresses, alias: null };
    const alias = own.find((record) => record.type === TYPE.CNAME);
    const target = alias === undefined ? null : readName(answer, alias.dataAt);
    if (target === null) break;
    owner = target;
  }
  return { addresses: [], alias: owner === name ? null : owner };
}

/** Writes a question. Each label of the name must have 1 to 63 ASCII characters. */
export function makeQuestion(name: string, type: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(FLAG.RECURSION_DESIRED, 2);
  header.writeUInt16BE(1, 4);
  const rest = Buffer.alloc(4);
  rest.writeUInt16BE(type, 0);
  rest.writeUInt16BE(CLASS_IN, 2);
  return Buffer.concat([header, encodeName(name), rest]);
}

/** Whether the answer is truncated (TC flag). */
export function isTruncated(answer: Buffer): boolean {
  return (answer.readUInt16BE(2) & FLAG.TRUNCATED) !== 0;
}

function sameQuestion(question: Buffer, message: Buffer): boolean {
  const asked = questionAt(question, HEADER_BYTES);
  const answered = questionAt(message, HEADER_BYTES);
  if (asked === null || answered === null || asked.end !== answered.end) return false;
  if (asked.type !== answered.type || asked.class !== answered.class) return false;
  const text = (bytes: Buffer): string =>
    bytes.toString('latin1', HEADER_BYTES, asked.end - 4).toLowerCase();
  return text(question) === text(message);
}

/** The records of the answer section; none when the message is malformed. */
function answerRecords(answer: Buffer): RecordPlace[] {
  return recordsOf(answer)?.slice(0, answer.readUInt16BE(6)) ?? [];
}

function addressesOf(answer: Buffer, records: readonly RecordPlace[], type: number): string[] {
  const bytes = type === TYPE.A ? 4 : 16;
  return records
    .filter((record) => record.type === type && record.dataLength === bytes)
    .map(({ dataAt }) => formatIp(answer.subarray(dataAt, dataAt + bytes)));
}

/** All records in order; null when one is incomplete. */
function recordsOf(message: Buffer): RecordPlace[] | null {
  let at = HEADER_BYTES;
  for (let index = message.readUInt16BE(4); index > 0; index -= 1) {
    const question = questionAt(message, at);
    if (question === null) return null;
    at = question.end;
  }
  const count = message.readUInt16BE(6) + message.readUInt16BE(8) + message.readUInt16BE(10);
  if (count > MAX_RECORDS || message.length > MAX_UDP_BYTES + HEADER_BYTES * 4) return null;
  const records: RecordPlace[] = [];
  for (let index = 0; index < count; index += 1) {
    const record = recordAt(message, at);
    if (record === null) return null;
    records.push(record);
    at = record.end;
  }
  return records;
}

/** The last number of an SOA record (RFC 2308 §4). */
function negativeTtl(answer: Buffer, soa: RecordPlace): number {
  return soa.dataLength < 20 ? 0 : answer.readUInt32BE(soa.dataAt + soa.dataLength - 4);
}

/** Writes the mesh's own answers (docs/spec/dns.md §4). */
import { parseIp } from '../net/address.ts';
import { MAX_TCP_BYTES, MAX_UDP_BYTES, MIN_UDP_BYTES } from './limits.ts';
import type { Edns, Query } from './request.ts';
import { CLASS_IN, FLAG, HEADER_BYTES, RCODE, TYPE, encodeName } from './wire.ts';
import type { Rcode } from './wire.ts';

/** Lifetime of every record that the mesh answers with, seconds. */
export const LOCAL_TTL_SECONDS = 30;

/** The protocol that a message came over; it bounds the answer's size. */
export type DnsProtocol = 'udp' | 'tcp';

/** The contents of a local answer. */
export interface LocalAnswer {
  /** The name that the asked one is an alias of; it then owns the addresses. */
  readonly alias: string | null;
  /** Addresses of the family asked for, in the order to send. */
  readonly addresses: readonly string[];
}

const OPT_BYTES = 11;
/** A compression pointer reaches offsets below this. */
const POINTER_LIMIT = 0x4000;
const KEPT_FLAGS = 0x7800 | FLAG.RECURSION_DESIRED | FLAG.CHECKING_DISABLED;

/** An answer with a code and no records. It repeats the question when `query` is given. */
export function errorResponse(message: Buffer, query: Query | null, rcode: Rcode): Buffer {
  const question =
    query === null ? Buffer.alloc(0) : message.subarray(HEADER_BYTES, query.question.end);
  const opt = optRecord(query?.edns ?? null);
  const flags = FLAG.RESPONSE | FLAG.RECURSION_AVAILABLE | keptFlags(message) | rcode;
  const counts = [query === null ? 0 : 1, 0, 0, opt.length === 0 ? 0 : 1];
  return Buffer.concat([header(message, flags, counts), question, opt]);
}

/** An authoritative answer. It leaves out records that do not fit and then sets the TC flag. */
export function localResponse(
  message: Buffer,
  query: Query,
  answer: LocalAnswer,
  protocol: DnsProtocol,
): Buffer {
  const question = message.subarray(HEADER_BYTES, query.question.end);
  const opt = optRecord(query.edns);
  const limit = sizeLimit(query.edns, protocol) - opt.length;
  const records = new RecordWriter(HEADER_BYTES + question.length, limit);
  writeAnswer(records, ownerOf(question), query.question.type, answer);
  const flags =
    FLAG.RESPONSE |
    FLAG.AUTHORITATIVE |
    FLAG.RECURSION_AVAILABLE |
    (records.truncated ? FLAG.TRUNCATED : 0) |
    keptFlags(message) |
    RCODE.NOERROR;
  const counts = [1, records.count, 0, opt.length === 0 ? 0 : 1];
  return Buffer.concat([header(message, flags, counts), question, ...records.parts, opt]);
}

function writeAnswer(
  records: RecordWriter,
  owner: Buffer,
  type: number,
  { alias, addresses }: LocalAnswer,
): void {
  let target = owner;
  if (alias !== null) {
    target = encodeName(alias);
    if (!records.add(owner, TYPE.CNAME, target)) return;
  }
  for (const address of addresses) {
    if (!records.add(target, type, Buffer.from(parseIp(address).bytes))) return;
  }
}

/** Writes records; each name is written once and pointed at afterwards. */
class RecordWriter {
  readonly parts: Buffer[] = [];
  count = 0;
  truncated = false;
  readonly #limit: number;
  readonly #names = new Map<string, number>();
  #at: number;

  constructor(start: number, limit: number) {
    this.#at = start;
    this.#limit = limit;
  }

  /** False when the record does not fit. */
  add(owner: Buffer, type: number, data: Buffer): boolean {
    const name = this.#reference(owner);
    const size = name.length + 10 + data.length;
    if (this.#at + size > this.#limit) {
      this.truncated = true;
      return false;
    }
    const fixed = Buffer.alloc(10);
    fixed.writeUInt16BE(type, 0);
    fixed.writeUInt16BE(CLASS_IN, 2);
    fixed.writeUInt32BE(LOCAL_TTL_SECONDS, 4);
    fixed.writeUInt16BE(data.length, 8);
    if (name === owner) this.#note(owner, this.#at);
    if (type === TYPE.CNAME) this.#note(data, this.#at + name.length + 10);
    this.parts.push(name, fixed, data);
    this.#at += size;
    this.count += 1;
    return true;
  }

  #reference(owner: Buffer): Buffer {
    const known = owner[0] === 0xc0 ? undefined : this.#names.get(owner.toString('latin1'));
    return known === undefined ? owner : pointerTo(known);
  }

  #note(name: Buffer, at: number): void {
    if (at < POINTER_LIMIT) this.#names.set(name.toString('latin1'), at);
  }
}

/** The asked name in lower case: a pointer to the question if that is in lower case already. */
function ownerOf(question: Buffer): Buffer {
  const name = question.subarray(0, question.length - 4);
  const lower = Buffer.from(name);
  for (const [index, byte] of lower.entries()) {
    if (byte >= 0x41 && byte <= 0x5a) lower[index] = byte + 0x20;
  }
  // A length octet is at most 63, which is no capital letter, so whole names can be compared.
  return lower.equals(name) ? pointerTo(HEADER_BYTES) : lower;
}

function pointerTo(offset: number): Buffer {
  return Buffer.of(0xc0 | (offset >> 8), offset & 0xff);
}

function sizeLimit(edns: Edns | null, protocol: DnsProtocol): number {
  if (protocol === 'tcp') return MAX_TCP_BYTES;
  return Math.min(MAX_UDP_BYTES, Math.max(MIN_UDP_BYTES, edns?.payload ?? 0));
}

function optRecord(edns: Edns | null): Buffer {
  if (edns === null) return Buffer.alloc(0);
  const record = Buffer.alloc(OPT_BYTES);
  record.writeUInt16BE(TYPE.OPT, 1);
  record.writeUInt16BE(Math.max(edns.payload, MIN_UDP_BYTES), 3);
  record[6] = edns.version;
  record[7] = edns.dnssecOk ? 0x80 : 0;
  return record;
}

function keptFlags(message: Buffer): number {
  return message.readUInt16BE(2) & KEPT_FLAGS;
}

function header(message: Buffer, flags: number, counts: readonly number[]): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES);
  message.copy(bytes, 0, 0, 2);
  bytes.writeUInt16BE(flags, 2);
  for (const [index, count] of counts.entries()) bytes.writeUInt16BE(count, 4 + index * 2);
  return bytes;
}

/**
 * Certificate revocation lists (RFC 5280 §5) as docs/spec/hbone.md §4 uses them. Threads share the file's bytes and, for
 * each list, the sorted offsets of its serial numbers; entries are not kept as objects.
 */
import { MeshError } from '../errors/mesh-error.ts';
import { derElements, fromDer, oidText, sequenceOf, withoutLeadingZeros } from './asn1.ts';
import type { DerElement } from './asn1.ts';
import { refuseCritical } from './crl-extensions.ts';
import { isSignatureAlgorithm } from './signature.ts';

/** One list. Threads share the arrays and only read them. */
export interface RevocationList {
  /** The issuer's name, DER. */
  readonly issuer: Uint8Array;
  readonly algorithm: string;
  /** The bytes that the signature covers. */
  readonly signed: Uint8Array;
  readonly signature: Uint8Array;
  readonly thisUpdateMs: number;
  /** Null when the list names no next update. */
  readonly nextUpdateMs: number | null;
  /** Offsets of the serial numbers in {@link RevocationLists.bytes}, sorted by serial number. */
  readonly serials: Uint32Array;
}

/** All lists of one file; plain data for a MessagePort. */
export interface RevocationLists {
  readonly bytes: Uint8Array;
  readonly lists: readonly RevocationList[];
}

/** Longest file, some 200,000 entries. A longer one would block the process that reads it for too long. */
export const MAX_CRL_BYTES = 8_388_608;

/** Most lists in one file; each authority of the mesh has one. */
export const MAX_CRL_LISTS = 256;

const PEM_LIST = /-----BEGIN X509 CRL-----([^-]*)-----END X509 CRL-----/g;
const PEM_BEGIN = /-----BEGIN X509 CRL-----/g;

const Tag = {
  integer: 0x02,
  bitString: 0x03,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  extensions: 0xa0,
} as const;

/** The content of a file without lists. */
export const NO_REVOCATIONS: RevocationLists = { bytes: new Uint8Array(0), lists: [] };

/**
 * Reads PEM with any number of lists (other blocks are ignored) or one DER list; empty content revokes nothing. One bad
 * list refuses the whole file: throws IDENTITY_INVALID that names the list and the fault.
 */
export function parseRevocationLists(content: Buffer): RevocationLists {
  if (content.length > MAX_CRL_BYTES) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `the revocation lists are longer than ${MAX_CRL_BYTES} bytes`,
    );
  }
  const ders = listsIn(content);
  if (ders.length > MAX_CRL_LISTS) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `the file holds ${ders.length} revocation lists; at most ${MAX_CRL_LISTS} are allowed`,
    );
  }
  const bytes = Buffer.from(new SharedArrayBuffer(ders.reduce((sum, der) => sum + der.length, 0)));
  let at = 0;
  const lists = ders.map((der, index) => {
    const from = at;
    at += der.copy(bytes, at);
    return new ListReader(bytes, `revocation list ${index + 1}`).read(from, at);
  });
  return { bytes, lists };
}

/** Compares serial numbers without leading zeros: shorter ones first. */
export function compareSerials(left: Uint8Array, right: Uint8Array): number {
  return left.length - right.length || Buffer.compare(left, right);
}

/** Returns the serial number whose INTEGER is at the offset. */
export function serialAt(bytes: Uint8Array, offset: number): Buffer {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  // The length takes one byte, because longer serial numbers were refused.
  const start = offset + 2;
  return withoutLeadingZeros(buffer.subarray(start, start + (buffer[offset + 1] ?? 0)));
}

function listsIn(content: Buffer): Buffer[] {
  const text = content.toString('latin1');
  if (text.trim() === '') return [];
  if (!text.includes('-----BEGIN')) return [content];
  const blocks = [...text.matchAll(PEM_LIST)];
  if (blocks.length !== (text.match(PEM_BEGIN)?.length ?? 0)) {
    throw new MeshError('IDENTITY_INVALID', 'a revocation list in the file is cut short');
  }
  return blocks.map((block) => Buffer.from(block[1] ?? '', 'base64'));
}

/** Longest serial number; RFC 5280 allows 20 bytes. */
const MAX_SERIAL_BYTES = 64;

/** Reads one list of shared bytes. */
class ListReader {
  readonly #der: Buffer;
  readonly #what: string;

  constructor(der: Buffer, what: string) {
    this.#der = der;
    this.#what = what;
  }

  read(from: number, to: number): RevocationList {
    const [outer, surplus] = this.#elements(from, to);
    if (surplus !== undefined) throw this.#malformed('bytes follow it');
    const [signed, algorithm, signature] = this.#children(outer, 'the list');
    const fields = this.#fields(this.#children(signed, 'the signed part'));
    if (!this.#bytes(algorithm).equals(this.#bytes(fields.algorithm))) {
      throw this.#malformed('its two signature algorithms differ');
    }
    return {
      issuer: this.#bytes(fields.issuer),
      algorithm: this.#algorithm(algorithm),
      signed: this.#bytes(signed),
      signature: this.#signature(signature),
      thisUpdateMs: this.#time(fields.thisUpdate),
      nextUpdateMs: fields.nextUpdate === null ? null : this.#time(fields.nextUpdate),
      serials: this.#serials(fields.entries),
    };
  }

  /** Sorts the elements of the signed part, some optional, by their fixed order. */
  #fields(parts: DerElement[]): {
    algorithm: DerElement | undefined;
    issuer: DerElement;
    thisUpdate: DerElement | undefined;
    nextUpdate: DerElement | null;
    entries: DerElement | null;
  } {
    const take = (...tags: number[]): DerElement | null =>
      tags.includes(parts[0]?.tag ?? -1) ? (parts.shift() ?? null) : null;
    take(Tag.integer);
    const algorithm = parts.shift();
    const issuer = take(Tag.sequence);
    const thisUpdate = parts.shift();
    const nextUpdate = take(Tag.utcTime, Tag.generalizedTime);
    const entries = take(Tag.sequence);
    const extensions = take(Tag.extensions);
    if (issuer === null || parts.length > 0) throw this.#malformed('its parts are out of order');
    if (extensions !== null) {
      const [inner] = this.#elements(extensions.start, extensions.end);
      refuseCritical(this.#der, inner, 'list', this.#what);
    }
    return { algorithm, issuer, thisUpdate, nextUpdate, entries };
  }

  #serials(entries: DerElement | null): Uint32Array {
    if (entries === null) return new Uint32Array(0);
    const found: { readonly serial: Buffer; readonly offset: number }[] = [];
    for (const entry of derElements(this.#der, entries.start, entries.end, this.#what)) {
      const [serial, , extensions] = this.#children(entry, 'an entry');
      if (serial?.tag !== Tag.integer) throw this.#malformed('an entry has no serial number');
      const length = serial.end - serial.start;
      if (length < 1 || length > MAX_SERIAL_BYTES || serial.start !== serial.offset + 2) {
        throw this.#malformed(`a serial number has ${length} bytes`);
      }
      if (extensions !== undefined) refuseCritical(this.#der, extensions, 'entry', this.#what);
      const bytes = this.#der.subarray(serial.start, serial.end);
      found.push({ serial: withoutLeadingZeros(bytes), offset: serial.offset });
    }
    found.sort((left, right) => compareSerials(left.serial, right.serial));
    const offsets = new Uint32Array(
      new SharedArrayBuffer(found.length * Uint32Array.BYTES_PER_ELEMENT),
    );
    for (const [index, { offset }] of found.entries()) offsets[index] = offset;
    return offsets;
  }

  #algorithm(element: DerElement | undefined): string {
    const [oid] = sequenceOf(fromDer(this.#bytes(element), this.#what), this.#what);
    const algorithm = oidText(oid, `the signature algorithm of ${this.#what}`);
    if (!isSignatureAlgorithm(algorithm)) {
      throw this.#malformed(`its signature algorithm ${algorithm} is not accepted`);
    }
    return algorithm;
  }

  #signature(element: DerElement | undefined): Buffer {
    // The first byte counts unused bits.
    if (element?.tag !== Tag.bitString || this.#der[element.start] !== 0) {
      throw this.#malformed('it has no signature');
    }
    return this.#der.subarray(element.start + 1, element.end);
  }

  #time(element: DerElement | undefined): number {
    const text =
      element === undefined ? '' : this.#der.toString('latin1', element.start, element.end);
    const match = /^(\d{2}|\d{4})(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})Z$/.exec(text);
    const tag = match?.[1]?.length === 2 ? Tag.utcTime : Tag.generalizedTime;
    if (match === null || element?.tag !== tag) throw this.#malformed('a time cannot be read');
    const [year = 0, month = 0, ...rest] = match.slice(1).map(Number);
    const [day = 0, hour = 0, minute = 0, second = 0] = rest;
    // Two digits stand for 1950 to 2049 (RFC 5280 §4.1.2.5.1).
    const century = tag === Tag.generalizedTime ? 0 : year < 50 ? 2_000 : 1_900;
    return Date.UTC(century + year, month - 1, day, hour, minute, second);
  }

  #children(element: DerElement | undefined, part: string): DerElement[] {
    if (element?.tag !== Tag.sequence) throw this.#malformed(`${part} is no sequence`);
    return this.#elements(element.start, element.end);
  }

  #elements(from: number, to: number): DerElement[] {
    return [...derElements(this.#der, from, to, this.#what)];
  }

  #bytes(element: DerElement | undefined): Buffer {
    return element === undefined
      ? Buffer.alloc(0)
      : this.#der.subarray(element.offset, element.end);
  }

  #malformed(why: string): MeshError {
    return new MeshError('IDENTITY_INVALID', `${this.#what}: ${why}`);
  }
}

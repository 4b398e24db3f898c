/**
 * Converts IP addresses between text and bytes. Pure code (policy, routing) needs the bytes, which node:net does not give.
 */
import { MeshError } from '../errors/mesh-error.ts';

/** An address in bytes: 4 for IPv4, 16 for IPv6. An IPv4-mapped address stays IPv6. */
export interface IpAddress {
  readonly family: 4 | 6;
  readonly bytes: Uint8Array;
}

/** A host and a port; an IP host is in canonical form, without brackets. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

const V4_TEXT = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/;
const V6_GROUPS = 8;
const HIGHEST_PORT = 65_535;
const MAX_PORT_DIGITS = 5;
/** How the kernel writes an IPv4 address of a dual-stack socket. */
const MAPPED_PREFIX = '::ffff:';
const DOT = 0x2e;
const ZERO = 0x30;

/** Parses an address exactly as written. It refuses zones (`%eth0`) and leading zeros in IPv4. Throws ADDRESS_INVALID. */
export function parseIp(text: string): IpAddress {
  const address = tryParseIp(text);
  if (address === null) {
    throw new MeshError('ADDRESS_INVALID', `not an IP address: ${JSON.stringify(text)}`);
  }
  return address;
}

/** Like {@link parseIp}, but returns null instead of throwing. */
export function tryParseIp(text: string): IpAddress | null {
  const v4 = parseV4(text);
  if (v4 !== null) return { family: 4, bytes: v4 };
  const v6 = parseV6(text);
  return v6 === null ? null : { family: 6, bytes: v6 };
}

/**
 * The text of 4 or 16 bytes: dotted, or compressed lower case (RFC 5952). An IPv4-mapped address keeps `::ffff:` in front of its
 * dotted form. Throws ADDRESS_INVALID for any other length.
 */
export function formatIp(bytes: Uint8Array): string {
  if (bytes.length === 4) return bytes.join('.');
  if (bytes.length !== 16) {
    throw new MeshError('ADDRESS_INVALID', `an IP address has 4 or 16 bytes, not ${bytes.length}`);
  }
  if (isMapped(bytes)) return `::ffff:${bytes.subarray(12).join('.')}`;
  const groups: number[] = [];
  for (let index = 0; index < 16; index += 2) {
    groups.push(((bytes[index] ?? 0) << 8) | (bytes[index + 1] ?? 0));
  }
  return compress(groups);
}

/** The text form that serves as a key: IPv4-mapped becomes IPv4, IPv6 is compressed lower case. Throws ADDRESS_INVALID. */
export function canonicalIp(text: string): string {
  return canonicalV4(text) ?? formatIp(unmapped(parseIp(text).bytes));
}

/** Like {@link canonicalIp}, but returns null instead of throwing. */
export function tryCanonicalIp(text: string): string | null {
  const v4 = canonicalV4(text);
  if (v4 !== null) return v4;
  const address = tryParseIp(text);
  return address === null ? null : formatIp(unmapped(address.bytes));
}

/** The canonical text of address bytes, see {@link canonicalIp}. Throws ADDRESS_INVALID for a wrong length. */
export function canonicalIpOf(bytes: Uint8Array): string {
  return formatIp(unmapped(bytes));
}

/** The family of an address text; null when the text is no address. */
export function ipFamily(text: string): 4 | 6 | null {
  if (isDotted(text, 0)) return 4;
  return tryParseIp(text)?.family ?? null;
}

/** `10.0.0.1:80`, `[fd00::1]:80`, `name:80`. */
export function formatHostPort(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/**
 * Parses the output of {@link formatHostPort}. An IP host comes back canonical, any other non-empty host as written. Null for
 * another form, and for a port that is not 0 to 65535.
 */
export function tryParseHostPort(text: string): HostPort | null {
  const separator = text.lastIndexOf(':');
  if (separator <= 0) return null;
  const port = parsePort(text.slice(separator + 1));
  if (port === null) return null;
  const host = text.slice(0, separator);
  if (isDotted(host, 0)) return { host, port };
  if (host.startsWith('[')) {
    if (!host.endsWith(']')) return null;
    const address = tryParseIp(host.slice(1, -1));
    if (address === null || address.family !== 6) return null;
    return { host: formatIp(unmapped(address.bytes)), port };
  }
  // An IPv6 address without brackets is ambiguous, and a host name holds none of these.
  if (/[:[\]\s/]/.test(host)) return null;
  return { host: tryCanonicalIp(host) ?? host, port };
}

/** The canonical IPv4 text if it stands in `text` already, as it nearly always does. Null does not mean that the text is no address. */
function canonicalV4(text: string): string | null {
  if (isDotted(text, 0)) return text;
  if (!text.startsWith(MAPPED_PREFIX) || !isDotted(text, MAPPED_PREFIX.length)) return null;
  return text.slice(MAPPED_PREFIX.length);
}

/** Whether {@link parseV4} would accept the text from `start` on. It allocates nothing. */
function isDotted(text: string, start: number): boolean {
  let parts = 1;
  let digits = 0;
  let value = 0;
  for (let index = start; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code === DOT) {
      if (digits === 0 || parts === 4) return false;
      parts += 1;
      digits = 0;
      value = 0;
      continue;
    }
    const digit = code - ZERO;
    if (digit < 0 || digit > 9 || (digits > 0 && value === 0)) return false;
    digits += 1;
    value = value * 10 + digit;
    if (value > 255) return false;
  }
  return parts === 4 && digits > 0;
}

function parsePort(text: string): number | null {
  if (text.length === 0 || text.length > MAX_PORT_DIGITS) return null;
  let port = 0;
  for (let index = 0; index < text.length; index += 1) {
    const digit = text.charCodeAt(index) - ZERO;
    if (digit < 0 || digit > 9) return null;
    port = port * 10 + digit;
  }
  return port <= HIGHEST_PORT ? port : null;
}

function parseV4(text: string): Uint8Array | null {
  const match = V4_TEXT.exec(text);
  if (match === null) return null;
  const bytes = new Uint8Array(4);
  for (let index = 0; index < 4; index += 1) {
    const part = match[index + 1] ?? '';
    const value = Number(part);
    if (value > 255 || (part.length > 1 && part.startsWith('0'))) return null;
    bytes[index] = value;
  }
  return bytes;
}

function parseV6(text: string): Uint8Array | null {
  if (!text.includes(':')) return null;
  const halves = text.split('::');
  if (halves.length > 2) return null;
  const head = parseGroups(halves[0] ?? '', halves.length === 1);
  if (head === null) return null;
  if (halves.length === 1) return head.length === V6_GROUPS ? groupBytes(head) : null;
  const tail = parseGroups(halves[1] ?? '', true);
  if (tail === null) return null;
  const missing = V6_GROUPS - head.length - tail.length;
  if (missing < 1) return null;
  return groupBytes([...head, ...Array.from({ length: missing }, () => 0), ...tail]);
}

/** The groups on one side of `::`. Only the last group of an address may be dotted IPv4. */
function parseGroups(text: string, atEnd: boolean): number[] | null {
  if (text === '') return [];
  const groups: number[] = [];
  const parts = text.split(':');
  for (const [index, part] of parts.entries()) {
    if (atEnd && index === parts.length - 1 && part.includes('.')) {
      const v4 = parseV4(part);
      if (v4 === null) return null;
      groups.push(((v4[0] ?? 0) << 8) | (v4[1] ?? 0), ((v4[2] ?? 0) << 8) | (v4[3] ?? 0));
    } else {
      if (!/^[0-9a-fA-F]{1,4}$/.test(part)) return null;
      groups.push(Number.parseInt(part, 16));
    }
  }
  return groups;
}

function groupBytes(groups: readonly number[]): Uint8Array {
  const bytes = new Uint8Array(16);
  for (const [index, group] of groups.entries()) {
    bytes[index * 2] = group >> 8;
    bytes[index * 2 + 1] = group & 0xff;
  }
  return bytes;
}

function isMapped(bytes: Uint8Array): boolean {
  for (let index = 0; index < 10; index += 1) if (bytes[index] !== 0) return false;
  return bytes[10] === 0xff && bytes[11] === 0xff;
}

function unmapped(bytes: Uint8Array): Uint8Array {
  return bytes.length === 16 && isMapped(bytes) ? bytes.subarray(12) : bytes;
}

/** Shortens the first of the longest runs of two or more zero groups (RFC 5952 §4.2). */
function compress(groups: readonly number[]): string {
  let start = -1;
  let length = 1;
  for (let index = 0; index < groups.length; index += 1) {
    let end = index;
    while (groups[end] === 0) end += 1;
    if (end - index > length) {
      start = index;
      length = end - index;
    }
    index = Math.max(index, end - 1);
  }
  const hex = groups.map((group) => group.toString(16));
  if (start === -1) return hex.join(':');
  return `${hex.slice(0, start).join(':')}::${hex.slice(start + length).join(':')}`;
}

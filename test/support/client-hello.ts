/** Reads a TLS ClientHello (RFC 8446 §4.1.2): what a client of ours offers, as a peer sees it. */

/** The offer of a client. */
export interface ClientHello {
  readonly suites: readonly number[];
  /** Extension numbers in order. */
  readonly extensions: readonly number[];
  readonly sessionId: Buffer;
  readonly versions: readonly number[];
  readonly alpn: readonly string[];
  readonly groups: readonly number[];
  readonly keyShares: readonly number[];
}

/** Numbers of extensions and groups that tests name. */
export const Tls = {
  serverName: 0,
  sessionTicket: 35,
  preSharedKey: 41,
  earlyData: 42,
  x25519: 0x001d,
  p256: 0x0017,
  p384: 0x0018,
  x25519MlKem768: 0x11ec,
} as const;

const SUPPORTED_GROUPS = 10;
const ALPN = 16;
const SUPPORTED_VERSIONS = 43;
const KEY_SHARE = 51;

/** The hello in the first record, null while it is not complete. */
export function parseClientHello(bytes: Buffer): ClientHello | null {
  if (bytes.length < 5 || bytes.length < 5 + bytes.readUInt16BE(3)) return null;
  // Record header, handshake header, legacy version, random.
  let at = 5 + 4 + 2 + 32;
  const take = (lengthBytes: number): Buffer => {
    const start = at + lengthBytes;
    at = start + bytes.readUIntBE(at, lengthBytes);
    return bytes.subarray(start, at);
  };
  const sessionId = take(1);
  const suites = numbers(take(2));
  take(1);
  const extensions = new Map<number, Buffer>();
  const all = take(2);
  for (let offset = 0; offset < all.length;) {
    const length = all.readUInt16BE(offset + 2);
    extensions.set(all.readUInt16BE(offset), all.subarray(offset + 4, offset + 4 + length));
    offset += 4 + length;
  }
  const body = (number: number, skip: number): Buffer =>
    extensions.get(number)?.subarray(skip) ?? Buffer.alloc(0);
  return {
    suites,
    extensions: [...extensions.keys()],
    sessionId,
    versions: numbers(body(SUPPORTED_VERSIONS, 1)),
    alpn: protocols(body(ALPN, 2)),
    groups: numbers(body(SUPPORTED_GROUPS, 2)),
    keyShares: shares(body(KEY_SHARE, 2)),
  };
}

function numbers(bytes: Buffer): number[] {
  return Array.from({ length: bytes.length / 2 }, (_, index) => bytes.readUInt16BE(2 * index));
}

function protocols(bytes: Buffer): string[] {
  const names: string[] = [];
  for (let at = 0; at < bytes.length; at += 1 + (bytes[at] ?? 0)) {
    names.push(bytes.toString('latin1', at + 1, at + 1 + (bytes[at] ?? 0)));
  }
  return names;
}

function shares(bytes: Buffer): number[] {
  const groups: number[] = [];
  for (let at = 0; at < bytes.length; at += 4 + bytes.readUInt16BE(at + 2)) {
    groups.push(bytes.readUInt16BE(at));
  }
  return groups;
}

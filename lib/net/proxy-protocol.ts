/** Writes the header of PROXY protocol version 2 (docs/spec/dataplane.md §7.5). */
import { parseIp } from './address.ts';

/** The connection that follows the header. */
export interface ProxyHeader {
  readonly source: { readonly ip: string; readonly port: number };
  readonly destination: { readonly ip: string; readonly port: number };
  /** SPIFFE URI of the source, null when there is none. */
  readonly identity: string | null;
}

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex');
const VERSION_2_PROXY = 0x21;
const TCP_OVER_IPV4 = 0x11;
const TCP_OVER_IPV6 = 0x21;
const TLV_IDENTITY = 0xd0;

/**
 * The bytes to send before those of the connection. Ends of different families are both written as IPv6. Throws ADDRESS_INVALID for
 * a text that is no address.
 */
export function encodeProxyHeader(header: ProxyHeader): Buffer {
  const source = parseIp(header.source.ip);
  const destination = parseIp(header.destination.ip);
  const isV4 = source.family === 4 && destination.family === 4;
  const ports = Buffer.alloc(4);
  ports.writeUInt16BE(header.source.port, 0);
  ports.writeUInt16BE(header.destination.port, 2);
  const body = Buffer.concat([
    isV4 ? source.bytes : sixteenBytes(source.bytes),
    isV4 ? destination.bytes : sixteenBytes(destination.bytes),
    ports,
    identityTlv(header.identity),
  ]);
  const length = Buffer.alloc(2);
  length.writeUInt16BE(body.length);
  const family = isV4 ? TCP_OVER_IPV4 : TCP_OVER_IPV6;
  return Buffer.concat([SIGNATURE, Buffer.of(VERSION_2_PROXY, family), length, body]);
}

function identityTlv(identity: string | null): Buffer {
  if (identity === null) return Buffer.alloc(0);
  const value = Buffer.from(identity);
  const head = Buffer.of(TLV_IDENTITY, 0, 0);
  head.writeUInt16BE(value.length, 1);
  return Buffer.concat([head, value]);
}

/** IPv4 as `::ffff:a.b.c.d`. */
function sixteenBytes(bytes: Uint8Array): Uint8Array {
  if (bytes.length === 16) return bytes;
  const mapped = new Uint8Array(16);
  mapped.fill(0xff, 10, 12);
  mapped.set(bytes, 12);
  return mapped;
}

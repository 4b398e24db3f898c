/** Virtual addresses: those an object holds, and the choice of free ones. */
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { formatIp, tryCanonicalIp } from '../../../lib/net/address.ts';
import type { Prefix } from '../../../lib/net/prefix.ts';
import { formatPrefix } from '../../../lib/net/prefix.ts';
import { sha256Hex } from '../../../lib/digest/sha256.ts';
import type { KubeObject, ServiceEntry } from '../manifests/kinds.ts';

/** An address allocated to a host of a ServiceEntry, as in its status. */
export interface AutoAddress {
  readonly value: string;
  readonly host: string;
}

/** The addresses that only this object may hold, in canonical form: cluster IPs and auto-allocated VIPs. */
export function ownedAddresses(object: KubeObject): string[] {
  if (object.kind === 'Service') {
    const { clusterIP, clusterIPs } = object.spec;
    const listed = clusterIPs ?? (clusterIP === undefined ? [] : [clusterIP]);
    return listed.map(tryCanonicalIp).filter((ip) => ip !== null);
  }
  if (object.kind === 'ServiceEntry') return autoAddresses(object).map(({ value }) => value);
  return [];
}

/** The auto-allocated addresses in a ServiceEntry's status. */
export function autoAddresses(entry: ServiceEntry): AutoAddress[] {
  const list: unknown = entry.status?.['addresses'];
  if (!Array.isArray(list)) return [];
  return list.filter(
    (item: unknown): item is AutoAddress =>
      typeof item === 'object' &&
      item !== null &&
      'value' in item &&
      typeof item.value === 'string' &&
      'host' in item &&
      typeof item.host === 'string',
  );
}

/** Addresses left free at the start of a range, for manual assignment. */
const RESERVED = 16;
/** Most host bits used of a range. Higher bits stay zero, which keeps addresses short. */
const MOST_HOST_BITS = 32;

/**
 * A free address of `range` for `owner`. The search starts at an offset derived from the owner, so that a deleted and
 * recreated object usually gets its address back. Throws STATE_CONFLICT when the range is used up.
 */
export function allocateAddress(
  range: Prefix,
  owner: string,
  isTaken: (ip: string) => boolean,
): string {
  const hostBits = Math.min(MOST_HOST_BITS, range.bytes.length * 8 - range.length);
  // The last address of an IPv4 range is its broadcast address.
  const usable = 2 ** hostBits - RESERVED - 1;
  const start = Number.parseInt(sha256Hex(owner).slice(0, 12), 16);
  for (let step = 0; step < usable; step += 1) {
    const ip = formatIp(atOffset(range, RESERVED + ((start + step) % usable)));
    if (!isTaken(ip)) return ip;
  }
  throw new MeshError('STATE_CONFLICT', `no address is left in ${formatPrefix(range)}`);
}

function atOffset(range: Prefix, offset: number): Uint8Array {
  const bytes = Uint8Array.from(range.bytes);
  let rest = offset;
  for (let index = bytes.length - 1; rest > 0; index -= 1) {
    bytes[index] = (bytes[index] ?? 0) | (rest & 0xff);
    rest = Math.floor(rest / 256);
  }
  return bytes;
}

import { parseIp } from '../net/address.ts';
import { makePrefix } from '../net/prefix.ts';
import type { Prefix } from '../net/prefix.ts';
import type { NetworkAddress } from './model.ts';

/** Returns the range of a CIDR VIP; null for a single address, also when it has its full length. */
export function rangeOf(address: NetworkAddress): Prefix | null {
  if (address.length === null) return null;
  const ip = parseIp(address.ip);
  return address.length >= ip.bytes.length * 8 ? null : makePrefix(ip, address.length);
}

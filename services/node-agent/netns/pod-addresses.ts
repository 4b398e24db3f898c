import { tryCanonicalIp } from '../../../lib/net/address.ts';
import type { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import { addressesOf } from '../../../lib/linux/netns.ts';

/** Returns whether an interface of the namespace has one of the addresses. Throws NATIVE_SYSCALL, for lack of descriptors too. */
export function holdsAddress(netns: NetnsHandle, addresses: readonly string[]): boolean {
  const there = new Set(addressesOf(netns.fd).map(tryCanonicalIp));
  return addresses.some((address) => there.has(tryCanonicalIp(address)));
}

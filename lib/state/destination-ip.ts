/** Chooses the address of a workload to connect to (docs/spec/dataplane.md §6). */
import { ipFamily } from '../net/address.ts';
import type { Service, Workload } from './model.ts';

/** The destination: an address, a name that the data path must resolve first, or nothing. */
export type DestinationIp =
  | { readonly kind: 'ip'; readonly ip: string }
  | { readonly kind: 'resolve'; readonly hostname: string; readonly preferredFamily: 4 | 6 }
  /** The workload is reached only through the network gateway of its network. */
  | { readonly kind: 'gateway-only' }
  | { readonly kind: 'none' };

/** Chooses the address of `workload` for a connection that was meant for `targetIp`. */
export function destinationIp(
  workload: Workload,
  service: Service | null,
  targetIp: string,
): DestinationIp {
  const { addresses, hostname } = workload;
  if (addresses.includes(targetIp)) return { kind: 'ip', ip: targetIp };
  const family = ipFamily(targetIp) ?? 4;
  const allowed = addresses.filter((ip) => allowsFamily(service, ipFamily(ip)));
  const ip = allowed.find((candidate) => ipFamily(candidate) === family) ?? allowed[0];
  if (ip !== undefined) return { kind: 'ip', ip };
  if (hostname !== '') return { kind: 'resolve', hostname, preferredFamily: family };
  return workload.networkGateway === null ? { kind: 'none' } : { kind: 'gateway-only' };
}

function allowsFamily(service: Service | null, family: 4 | 6 | null): boolean {
  switch (service?.ipFamilies) {
    case 'IPV4_ONLY':
      return family === 4;
    case 'IPV6_ONLY':
      return family === 6;
    default:
      return true;
  }
}

/**
 * Chooses one of the addresses of a resolved {@link DestinationIp}: a random one of the preferred family, else a random
 * one. Null without addresses.
 */
export function pickResolved(
  answers: readonly string[],
  preferredFamily: 4 | 6,
  random: () => number,
): string | null {
  const preferred = answers.filter((ip) => ipFamily(ip) === preferredFamily);
  const from = preferred.length > 0 ? preferred : answers;
  return from[Math.floor(random() * from.length)] ?? null;
}

/** Auto-allocated virtual addresses of ServiceEntries (docs/spec/istiod-ambient.md §1.5), kept in their status. Pure. */
import { keyOf } from '../manifests/kinds.ts';
import type { ServiceEntry } from '../manifests/kinds.ts';
import { allocateAddress, autoAddresses } from './addresses.ts';
import type { AutoAddress } from './addresses.ts';
import type { AddressRanges } from './ranges.ts';
import type { StateView } from './state.ts';

const OPT_OUT_LABEL = 'networking.istio.io/enable-autoallocate-ip';

/** The ServiceEntry with one address of each family for every host that needs one; held ones are kept. */
export function allocateEntryAddresses(
  view: StateView,
  entry: ServiceEntry,
  ranges: AddressRanges,
): ServiceEntry {
  const held = autoAddresses(entry);
  const key = keyOf(entry);
  const given = new Set<string>();
  const isTaken = (ip: string): boolean => given.has(ip) || view.addressOwner(ip) !== undefined;
  const addresses = allocatedHosts(entry).flatMap((host): AutoAddress[] => {
    const own = held.filter((address) => address.host === host);
    if (own.length > 0) return own;
    const values = [ranges.entryV4, ranges.entryV6].map((range) =>
      allocateAddress(range, `${key}/${host}`, isTaken),
    );
    for (const value of values) given.add(value);
    return values.map((value) => ({ value, host }));
  });
  const { addresses: _before, ...status } = entry.status ?? {};
  const next = addresses.length === 0 ? status : { ...status, addresses };
  const { status: _replaced, ...rest } = entry;
  return Object.keys(next).length === 0 ? rest : { ...rest, status: next };
}

function allocatedHosts(entry: ServiceEntry): string[] {
  const { spec, metadata } = entry;
  const resolution = spec.resolution ?? 'NONE';
  const optedOut = metadata.labels?.[OPT_OUT_LABEL]?.toLowerCase() === 'false';
  if ((spec.addresses?.length ?? 0) > 0 || resolution === 'NONE' || optedOut) return [];
  const unique = [...new Set(spec.hosts)];
  return unique.filter((host) => !host.startsWith('*') || resolution === 'DYNAMIC_DNS');
}

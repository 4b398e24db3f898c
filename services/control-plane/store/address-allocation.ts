/**
 * Allocates virtual addresses to Services and ServiceEntries (docs/spec/istiod-ambient.md §1.5). Given addresses are
 * checked, held ones are kept. Pure.
 */
import { canonicalIp, ipFamily, parseIp } from '../../../lib/net/address.ts';
import { formatPrefix, prefixContains } from '../../../lib/net/prefix.ts';
import type { Prefix } from '../../../lib/net/prefix.ts';
import { keyOf } from '../manifests/kinds.ts';
import type { KubeService, ServiceEntry } from '../manifests/kinds.ts';
import { allocateAddress, autoAddresses } from './addresses.ts';
import type { AutoAddress } from './addresses.ts';
import { FieldRefusal } from '../manifests/rejection.ts';
import type { StateView } from './state.ts';

/** Ranges that virtual addresses are allocated from. */
export interface AddressRanges {
  readonly serviceV4: Prefix;
  readonly serviceV6: Prefix;
  readonly entryV4: Prefix;
  readonly entryV6: Prefix;
}

const FAMILIES = [4, 6] as const;
const OPT_OUT_LABEL = 'networking.istio.io/enable-autoallocate-ip';

/** The Service with its cluster IPs; headless and ExternalName Services have none. Throws {@link FieldRefusal}. */
export function allocateClusterIps(
  view: StateView,
  service: KubeService,
  existing: KubeService | null,
  ranges: AddressRanges,
): KubeService {
  const { clusterIP, clusterIPs, ...rest } = service.spec;
  if (rest.type === 'ExternalName') return { ...service, spec: rest };
  const given = clusterIPs ?? (clusterIP === undefined || clusterIP === '' ? [] : [clusterIP]);
  const before = existing?.spec.clusterIPs ?? [];
  refuseHeadlessChange(given, before, existing);
  if (given.includes('None') || (given.length === 0 && before.includes('None'))) {
    return { ...service, spec: { ...rest, clusterIP: 'None', clusterIPs: ['None'] } };
  }
  const chosen = [...givenAddresses(view, service, given, before, ranges)];
  const families = wantedFamilies(service);
  for (const family of families) {
    if (chosen.some((ip) => ipFamily(ip) === family)) continue;
    const kept = before.find((ip) => ipFamily(ip) === family);
    chosen.push(kept ?? freeAddress(view, keyOf(service), family, ranges));
  }
  // As in Kubernetes `clusterIP` is the first of them.
  const first = chosen[0];
  return {
    ...service,
    spec: { ...rest, ...(first === undefined ? {} : { clusterIP: first }), clusterIPs: chosen },
  };
}

function givenAddresses(
  view: StateView,
  service: KubeService,
  given: readonly string[],
  before: readonly string[],
  ranges: AddressRanges,
): string[] {
  const key = keyOf(service);
  return given.map((text, index) => {
    const path =
      service.spec.clusterIPs === undefined ? 'spec.clusterIP' : `spec.clusterIPs[${index}]`;
    const ip = canonicalIp(text);
    const family = ipFamily(ip);
    if (given.findIndex((other) => ipFamily(canonicalIp(other)) === family) !== index) {
      throw new FieldRefusal(path, `there is already an IPv${family} address`);
    }
    const held = before.find((other) => ipFamily(other) === family);
    if (held !== undefined && held !== ip) {
      throw new FieldRefusal(path, `cannot be changed from ${held}, delete the service first`);
    }
    const range = family === 4 ? ranges.serviceV4 : ranges.serviceV6;
    if (!prefixContains(range, parseIp(ip))) {
      throw new FieldRefusal(path, `${ip} is outside of the range ${formatPrefix(range)}`);
    }
    const owner = view.addressOwner(ip);
    if (owner !== undefined && owner !== key) {
      throw new FieldRefusal(path, `${ip} is taken by ${owner}`);
    }
    return ip;
  });
}

function freeAddress(view: StateView, key: string, family: 4 | 6, ranges: AddressRanges): string {
  const range = family === 4 ? ranges.serviceV4 : ranges.serviceV6;
  return allocateAddress(range, key, (ip) => view.addressOwner(ip) !== undefined);
}

/** Both families unless the service asks for one. */
function wantedFamilies(service: KubeService): readonly (4 | 6)[] {
  const { ipFamilies, ipFamilyPolicy } = service.spec;
  const listed = (ipFamilies ?? []).map((family): 4 | 6 => (family === 'IPv4' ? 4 : 6));
  if (ipFamilyPolicy === 'SingleStack') return [listed[0] ?? 4];
  const rest = FAMILIES.filter((family) => !listed.includes(family));
  // Without a policy exactly the listed families are wanted.
  return ipFamilyPolicy === undefined && listed.length > 0 ? listed : [...listed, ...rest];
}

function refuseHeadlessChange(
  given: readonly string[],
  before: readonly string[],
  existing: KubeService | null,
): void {
  if (existing === null || given.length === 0 || existing.spec.type === 'ExternalName') return;
  if (given.includes('None') !== before.includes('None')) {
    throw new FieldRefusal(
      'spec.clusterIP',
      `cannot be changed from ${before[0] ?? 'none'}, delete the service first`,
    );
  }
}

/** The ServiceEntry with one address of each family, in its status, for every host that needs one. */
export function allocateEntryAddresses(
  view: Pick<StateView, 'addressOwner'>,
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

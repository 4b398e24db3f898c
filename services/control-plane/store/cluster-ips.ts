/** Virtual addresses of Services: given ones are checked, missing ones allocated, held ones kept. Pure. */
import { canonicalIp, ipFamily, parseIp } from '../../../lib/net/address.ts';
import { formatPrefix, prefixContains } from '../../../lib/net/prefix.ts';
import { keyOf } from '../manifests/kinds.ts';
import type { KubeService } from '../manifests/kinds.ts';
import { allocateAddress } from './addresses.ts';
import { FieldRefusal } from './field-refusal.ts';
import type { AddressRanges } from './ranges.ts';
import type { StateView } from './state.ts';

const FAMILIES = [4, 6] as const;

/** The Service with its cluster IPs; headless and ExternalName ones have none. Throws {@link FieldRefusal}. */
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
  // As in Kubernetes the first one is also `clusterIP`.
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
  // Without a policy a list of families means exactly these.
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

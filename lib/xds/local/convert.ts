/** Converts the objects of a local file to the model. Pure. */
import { canonicalIp, formatIp } from '../../net/address.ts';
import { parsePrefix } from '../../net/prefix.ts';
import type { AddressRange, Authorization } from '../../policy/model.ts';
import type { Service, Workload } from '../../state/model.ts';
import { splitFirst } from './schema.ts';
import type { LocalPolicy, LocalService, LocalWorkload } from './schema.ts';

/** The workload of the model. A workload without a uid gets a stable one. */
export function toWorkload(local: LocalWorkload): Workload {
  const { workloadIps, protocol, ...same } = local;
  const addresses = workloadIps.map(canonicalIp);
  return {
    ...same,
    uid: local.uid === '' ? `local//${local.namespace}/${local.name || addresses[0]}` : local.uid,
    addresses,
    tunnelProtocol: protocol,
  };
}

/** The service of the model. Throws ADDRESS_INVALID for a bad CIDR. */
export function toService(local: LocalService): Service {
  const { vips, cidrVips, endpoints: _empty, loadBalancer, ...same } = local;
  return {
    ...same,
    addresses: [
      ...vips.map((vip) => {
        const [network, ip] = splitFirst(vip);
        return { network, ip: canonicalIp(ip), length: null };
      }),
      ...cidrVips.map(({ network, cidr }) => {
        const range = toRange(cidr);
        return { network, ip: range.address, length: range.length };
      }),
    ],
    loadBalancing: loadBalancer && {
      routingPreference: loadBalancer.routingPreferences,
      mode: loadBalancer.mode,
      healthPolicy: loadBalancer.healthPolicy,
    },
  };
}

/** The policy of the model. Throws ADDRESS_INVALID for a bad range. */
export function toAuthorization(local: LocalPolicy): Authorization {
  const rules = local.rules.map((clauses) => ({
    clauses: clauses.map((matches) => ({
      matches: matches.map((match) => ({
        ...match,
        sourceIps: match.sourceIps.map(toRange),
        notSourceIps: match.notSourceIps.map(toRange),
        destinationIps: match.destinationIps.map(toRange),
        notDestinationIps: match.notDestinationIps.map(toRange),
      })),
    })),
  }));
  return { ...local, rules };
}

function toRange(text: string): AddressRange {
  const { bytes, length } = parsePrefix(text);
  return { address: formatIp(bytes), length };
}

import type { ServiceWithEndpoints } from '../../../lib/state/endpoint-set.ts';
import type { Service } from '../../../lib/state/model.ts';
import { omitEmpty, title } from './shape.ts';
import { dumpGateway } from './workload.ts';

const IP_FAMILIES = {
  AUTOMATIC: null,
  IPV4_ONLY: 'IPv4',
  IPV6_ONLY: 'IPv6',
  DUAL: 'Dual',
} as const satisfies Record<Service['ipFamilies'], string | null>;

const MODES = {
  UNSPECIFIED: 'Standard',
  STRICT: 'Strict',
  FAILOVER: 'Failover',
  PASSTHROUGH: 'Passthrough',
} as const;

/** Returns a service in the form that istioctl reads (docs/spec/observability.md §4.1). */
export function dumpService({ service, endpoints }: ServiceWithEndpoints): object {
  const plain = service.addresses.filter((address) => address.length === null);
  const ranges = service.addresses.filter((address) => address.length !== null);
  return {
    name: service.name,
    namespace: service.namespace,
    hostname: service.hostname,
    vips: plain.map(({ network, ip }) => `${network}/${ip}`),
    ...omitEmpty({
      cidrVips: ranges.map(({ network, ip, length }) => ({ network, cidr: `${ip}/${length}` })),
    }),
    ports: service.ports,
    endpoints: Object.fromEntries(
      [...endpoints].map(({ workload, ports }) => [
        workload.uid,
        { workloadUid: workload.uid, port: ports, status: title(workload.status) },
      ]),
    ),
    subjectAltNames: service.subjectAltNames,
    ...omitEmpty({
      waypoint: service.waypoint === null ? null : dumpGateway(service.waypoint),
      weightedWaypoints: service.weightedWaypoints.map(({ destination, weight }) => ({
        destination: dumpGateway(destination),
        weight,
      })),
      loadBalancer: dumpLoadBalancing(service),
      ipFamilies: IP_FAMILIES[service.ipFamilies],
    }),
    canonical: service.canonical,
    visibility: title(service.visibility),
  };
}

function dumpLoadBalancing({ loadBalancing }: Service): object | null {
  if (loadBalancing === null) return null;
  return {
    routingPreferences: loadBalancing.routingPreference.map(title),
    mode: MODES[loadBalancing.mode],
    healthPolicy: title(loadBalancing.healthPolicy),
  };
}

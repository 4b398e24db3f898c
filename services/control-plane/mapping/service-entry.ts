/** ServiceEntry → services and the workloads of its own endpoints (docs/spec/istiod-ambient.md §1.3, §1.5). Pure. */
import { formatIp, tryCanonicalIp } from '../../../lib/net/address.ts';
import { parsePrefix } from '../../../lib/net/prefix.ts';
import type { NetworkAddress, Service, Workload } from '../../../lib/state/model.ts';
import type { ServiceEntry } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { autoAddresses } from '../store/addresses.ts';
import { appProtocolOf } from './app-protocol.ts';
import { externalWorkload } from './external-workload.ts';
import type { WorkloadContext } from './external-workload.ts';
import { endpointPorts } from './service-target.ts';
import type { ServiceTarget, TargetPort } from './service-target.ts';

/** One target for each host; none when the entry is not exported. The caller decides `canonical`. */
export function serviceEntryTargets(entry: ServiceEntry, network: string): ServiceTarget[] {
  const { spec, metadata } = entry;
  const visibility = visibilityOf(entry);
  if (visibility === null) return [];
  const ports = (spec.ports ?? []).map((port): TargetPort => ({
    servicePort: port.number,
    name: port.name,
    target: port.targetPort ?? port.number,
    appProtocol: appProtocolOf({ protocolWord: port.protocol }),
  }));
  const passthrough = (spec.resolution ?? 'NONE') === 'NONE';
  return [...new Set(spec.hosts)].map((host) => {
    const hostname = host.toLowerCase().replace(/\.$/, '');
    const service: Service = {
      name: metadata.name,
      namespace: namespaceOf(entry),
      hostname,
      addresses: addressesOf(entry, host, network),
      ports: Object.fromEntries(
        ports.map(({ servicePort, target }) => [
          servicePort,
          typeof target === 'number' ? target : servicePort,
        ]),
      ),
      subjectAltNames: spec.subjectAltNames ?? [],
      waypoint: null,
      weightedWaypoints: [],
      loadBalancing: passthrough
        ? { mode: 'PASSTHROUGH', routingPreference: [], healthPolicy: 'ALLOW_ALL' }
        : null,
      ipFamilies: 'AUTOMATIC',
      canonical: false,
      visibility,
    };
    return {
      key: `${service.namespace}/${hostname}`,
      kind: 'ServiceEntry' as const,
      service,
      selector: spec.workloadSelector?.labels ?? null,
      ports,
    };
  });
}

/** Workloads of the inline endpoints; without endpoints, of the hosts that DNS resolves. */
export function serviceEntryWorkloads(
  entry: ServiceEntry,
  own: readonly ServiceTarget[],
  context: WorkloadContext,
): Workload[] {
  const { spec } = entry;
  const endpoints = spec.endpoints ?? [];
  const dns = spec.resolution === 'DNS' || spec.resolution === 'DNS_ROUND_ROBIN';
  if (endpoints.length === 0) {
    if (!dns || spec.workloadSelector !== undefined) return [];
    return own.map((target) =>
      externalWorkload(entry, { address: target.service.hostname }, context, {
        uidKind: 'ServiceEntry',
        services: { [target.key]: endpointPorts(target, undefined) },
      }),
    );
  }
  const seen = new Set<string>();
  return endpoints.flatMap((endpoint) => {
    const address = endpoint.address ?? '';
    const key = tryCanonicalIp(address) ?? address.toLowerCase();
    // Only the address distinguishes two endpoints of an entry.
    if (seen.has(key)) return [];
    seen.add(key);
    return [
      externalWorkload(entry, { ...endpoint, address }, context, {
        uidKind: 'ServiceEntry',
        services: Object.fromEntries(
          own.map((target) => [target.key, endpointPorts(target, endpoint.ports)]),
        ),
      }),
    ];
  });
}

function addressesOf(entry: ServiceEntry, host: string, network: string): NetworkAddress[] {
  const given = entry.spec.addresses ?? [];
  if (given.length > 0) {
    return given.map((text) => {
      const prefix = parsePrefix(text);
      return {
        network,
        ip: formatIp(prefix.bytes),
        length: prefix.length === prefix.bytes.length * 8 ? null : prefix.length,
      };
    });
  }
  return autoAddresses(entry)
    .filter((address) => address.host === host)
    .map(({ value }) => ({ network, ip: value, length: null }));
}

/** The visibility of an entry; null when it is exported to nobody. */
function visibilityOf(entry: ServiceEntry): Service['visibility'] | null {
  const scopes = entry.spec.exportTo ?? [];
  if (scopes.length === 0 || scopes.includes('*')) return 'PUBLIC';
  return scopes.includes('.') ? 'NAMESPACE' : null;
}

/** ServiceEntry → services and the workloads of its own endpoints (docs/spec/istiod-ambient.md §1.3, §1.5). Pure. */
import { formatIp, tryCanonicalIp } from '../../../lib/net/address.ts';
import { tryParsePrefix } from '../../../lib/net/prefix.ts';
import type { LoadBalancing, NetworkAddress, Service, Workload } from '../../../lib/state/model.ts';
import type { ServiceEntry } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { autoAddresses } from '../store/addresses.ts';
import { protocolOfWord } from './app-protocol.ts';
import { externalWorkload } from './external-workload.ts';
import type { WorkloadContext } from './external-workload.ts';
import { entryVisibility, narrower, visibilityOfScopes } from './mesh.ts';
import type { Mesh, Visibility } from './mesh.ts';
import type { NamespaceFacts } from './namespace-facts.ts';
import { endpointPorts } from './service-target.ts';
import type { ServiceTarget, TargetPort } from './service-target.ts';
import { DISTRIBUTION_ANNOTATION, preferredScopes } from './traffic-distribution.ts';

/** The label that opts out of automatic addresses. */
const OPT_OUT_LABEL = 'networking.istio.io/enable-autoallocate-ip';
const DNS_RESOLUTIONS: ReadonlySet<string> = new Set(['DNS', 'DNS_ROUND_ROBIN', 'DYNAMIC_DNS']);

/** One target for each host; none when the entry is exported to nobody. The caller decides `canonical`. */
export function serviceEntryTargets(
  entry: ServiceEntry,
  facts: NamespaceFacts,
  mesh: Mesh,
): ServiceTarget[] {
  const { spec, metadata } = entry;
  const visibility = entryVisibilityOf(entry, facts, mesh);
  if (visibility === 'NONE') return [];
  const namespace = namespaceOf(entry);
  const ports = (spec.ports ?? []).map((port): TargetPort => ({
    servicePort: port.number,
    name: port.name,
    target: port.targetPort ?? port.number,
    appProtocol: protocolOfWord(port.protocol),
  }));
  const loadBalancing = loadBalancingOf(entry, facts, mesh);
  return [...new Set(spec.hosts)].map((host) => {
    const hostname = host.toLowerCase().replace(/\.$/, '');
    const service: Service = {
      name: metadata.name,
      namespace,
      hostname,
      addresses: addressesOf(entry, host, mesh.network),
      ports: Object.fromEntries(
        ports.map(({ servicePort, target }) => [
          servicePort,
          typeof target === 'number' ? target : servicePort,
        ]),
      ),
      subjectAltNames: spec.subjectAltNames ?? [],
      waypoint: null,
      weightedWaypoints: [],
      loadBalancing,
      ipFamilies: 'AUTOMATIC',
      canonical: false,
      visibility,
    };
    return {
      key: `${namespace}/${hostname}`,
      kind: 'ServiceEntry' as const,
      owner: `${namespace}/${metadata.name}`,
      created: metadata.creationTimestamp ?? '',
      service,
      selector: spec.workloadSelector?.labels ?? null,
      ports,
    };
  });
}

function loadBalancingOf(
  { spec, metadata }: ServiceEntry,
  facts: NamespaceFacts,
  mesh: Mesh,
): LoadBalancing | null {
  if ((spec.resolution ?? 'NONE') === 'NONE') {
    return { mode: 'PASSTHROUGH', routingPreference: [], healthPolicy: 'ALLOW_ALL' };
  }
  const preferred = preferredScopes(
    [metadata.annotations?.[DISTRIBUTION_ANNOTATION], facts.annotations[DISTRIBUTION_ANNOTATION]],
    mesh,
  );
  if (preferred.length === 0) return null;
  return { mode: 'FAILOVER', routingPreference: preferred, healthPolicy: 'ONLY_HEALTHY' };
}

/** Workloads of the inline endpoints; without endpoints, of the hosts that DNS resolves. */
export function serviceEntryWorkloads(
  entry: ServiceEntry,
  own: readonly ServiceTarget[],
  context: WorkloadContext,
): Workload[] {
  const { spec } = entry;
  const endpoints = spec.endpoints ?? [];
  const dns = DNS_RESOLUTIONS.has(spec.resolution ?? 'NONE');
  if (endpoints.length === 0) {
    if (!dns || spec.workloadSelector !== undefined) return [];
    return own.map((target) =>
      externalWorkload(entry, { address: target.service.hostname }, context, {
        uidKind: 'ServiceEntry',
        services: { [target.key]: endpointPorts(target, undefined) },
        bindingLabels: null,
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
        bindingLabels: endpoint.labels ?? {},
      }),
    ];
  });
}

function addressesOf(entry: ServiceEntry, host: string, network: string): NetworkAddress[] {
  const given = entry.spec.addresses ?? [];
  if (given.length > 0) {
    return given.flatMap((text) => {
      const prefix = tryParsePrefix(text);
      if (prefix === null) return [];
      const single = prefix.length === prefix.bytes.length * 8;
      return [{ network, ip: formatIp(prefix.bytes), length: single ? null : prefix.length }];
    });
  }
  const resolution = entry.spec.resolution ?? 'NONE';
  // The status may be older than the spec.
  if (resolution === 'NONE' || entry.metadata.labels?.[OPT_OUT_LABEL]?.toLowerCase() === 'false') {
    return [];
  }
  if (host.startsWith('*') && resolution !== 'DYNAMIC_DNS') return [];
  return autoAddresses(entry)
    .filter((address) => address.host === host)
    .map(({ value }) => ({ network, ip: value, length: null }));
}

/** The visibility of an entry: as its `exportTo` or the mesh's default says, and no wider than the mesh allows in its namespace. */
export function entryVisibilityOf(
  entry: ServiceEntry,
  facts: NamespaceFacts,
  mesh: Mesh,
): Visibility {
  return narrower(
    visibilityOfScopes(entry.spec.exportTo) ?? mesh.exportTo,
    entryVisibility(mesh, facts.labels),
  );
}

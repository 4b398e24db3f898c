/** Kubernetes Service → service (docs/spec/istiod-ambient.md §1.4). Pure. */
import { canonicalIp, ipFamily } from '../../../lib/net/address.ts';
import type { LoadBalancing, Service } from '../../../lib/state/model.ts';
import { TRAFFIC_DISTRIBUTIONS } from '../manifests/core.ts';
import type { KubeService, NamespaceObject } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { appProtocolOf } from './app-protocol.ts';
import type { ServiceTarget, TargetPort } from './service-target.ts';

const DISTRIBUTION_ANNOTATION = 'networking.istio.io/traffic-distribution';
const EXPORT_ANNOTATION = 'networking.istio.io/exportTo';

/** The target of a Service; null for a Service that is not sent. */
export function kubeServiceTarget(
  object: KubeService,
  namespace: NamespaceObject | undefined,
  mesh: { readonly domain: string; readonly network: string },
): ServiceTarget | null {
  const { spec, metadata } = object;
  const exported = metadata.annotations?.[EXPORT_ANNOTATION]?.trim();
  if (spec.type === 'ExternalName' || exported === '~') return null;
  const ports = (spec.ports ?? []).map((port): TargetPort => ({
    servicePort: port.port,
    name: port.name ?? null,
    target: port.targetPort ?? port.port,
    appProtocol: appProtocolOf({ protocolWord: port.appProtocol, name: port.name }),
  }));
  const hostname = `${metadata.name}.${namespaceOf(object)}.svc.${mesh.domain}`;
  const service: Service = {
    name: metadata.name,
    namespace: namespaceOf(object),
    hostname,
    addresses: (spec.clusterIPs ?? [])
      .filter((ip) => ip !== 'None')
      .map((ip) => ({ network: mesh.network, ip: canonicalIp(ip), length: null })),
    ports: Object.fromEntries(
      ports.map(({ servicePort, target }) => [
        servicePort,
        typeof target === 'number' ? target : 0,
      ]),
    ),
    subjectAltNames: [],
    waypoint: null,
    weightedWaypoints: [],
    loadBalancing: loadBalancingOf(object, namespace),
    ipFamilies: familiesOf(object),
    canonical: true,
    visibility: exported === '.' ? 'NAMESPACE' : 'PUBLIC',
  };
  const selector = spec.selector ?? {};
  return {
    key: `${service.namespace}/${hostname}`,
    kind: 'Service',
    service,
    selector: Object.keys(selector).length === 0 ? null : selector,
    ports,
  };
}

function loadBalancingOf(
  object: KubeService,
  namespace: NamespaceObject | undefined,
): LoadBalancing | null {
  const healthPolicy = object.spec.publishNotReadyAddresses === true ? 'ALLOW_ALL' : 'ONLY_HEALTHY';
  if (object.spec.internalTrafficPolicy === 'Local') {
    return { mode: 'STRICT', routingPreference: ['NODE'], healthPolicy };
  }
  switch (distributionOf(object, namespace)) {
    case 'PreferClose':
    case 'PreferSameZone':
      return { mode: 'FAILOVER', routingPreference: ['NETWORK', 'REGION', 'ZONE'], healthPolicy };
    case 'PreferSameNode':
      return {
        mode: 'FAILOVER',
        routingPreference: ['NETWORK', 'REGION', 'ZONE', 'SUBZONE', 'NODE'],
        healthPolicy,
      };
    default:
      return healthPolicy === 'ALLOW_ALL'
        ? { mode: 'UNSPECIFIED', routingPreference: [], healthPolicy }
        : null;
  }
}

function distributionOf(
  object: KubeService,
  namespace: NamespaceObject | undefined,
): (typeof TRAFFIC_DISTRIBUTIONS)[number] | null {
  return (
    object.spec.trafficDistribution ??
    knownDistribution(object.metadata.annotations?.[DISTRIBUTION_ANNOTATION]) ??
    knownDistribution(namespace?.metadata.annotations?.[DISTRIBUTION_ANNOTATION])
  );
}

/** The families of a Service. PreferDualStack gives both families when the Service has addresses, or lists families, of both. */
function familiesOf({ spec }: KubeService): Service['ipFamilies'] {
  const { ipFamilyPolicy } = spec;
  const listed = spec.ipFamilies ?? [];
  const held = (spec.clusterIPs ?? [])
    .filter((ip) => ip !== 'None')
    .map((ip) => (ipFamily(canonicalIp(ip)) === 6 ? 'IPv6' : 'IPv4'));
  if (ipFamilyPolicy === 'RequireDualStack') return 'DUAL';
  if (ipFamilyPolicy === undefined && listed.length === 0) return 'AUTOMATIC';
  const families = new Set(ipFamilyPolicy === 'PreferDualStack' ? [...listed, ...held] : listed);
  if (families.size > 1) return 'DUAL';
  const [only] = families;
  if (only === undefined && ipFamilyPolicy === 'PreferDualStack') return 'DUAL';
  return only === 'IPv6' ? 'IPV6_ONLY' : 'IPV4_ONLY';
}

function knownDistribution(
  text: string | undefined,
): (typeof TRAFFIC_DISTRIBUTIONS)[number] | null {
  return (
    TRAFFIC_DISTRIBUTIONS.find((word) => word.toLowerCase() === text?.trim().toLowerCase()) ?? null
  );
}

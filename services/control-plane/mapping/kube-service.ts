/** Kubernetes Service → service (docs/spec/istiod-ambient.md §1.4). Pure. */
import { ipFamily, tryCanonicalIp } from '../../../lib/net/address.ts';
import type { LoadBalancing, Service } from '../../../lib/state/model.ts';
import type { KubeService } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { servicePortProtocol } from './app-protocol.ts';
import { serviceHostname } from './host-names.ts';
import type { Mesh } from './mesh.ts';
import type { NamespaceFacts } from './namespace-facts.ts';
import type { ServiceTarget, TargetPort } from './service-target.ts';
import { DISTRIBUTION_ANNOTATION, preferredScopes } from './traffic-distribution.ts';

/** The target of a Service; undefined for a Service that is not sent. */
export function kubeServiceTarget(
  object: KubeService,
  facts: NamespaceFacts,
  mesh: Mesh,
): ServiceTarget | undefined {
  const { spec, metadata } = object;
  if (spec.type === 'ExternalName') return undefined;
  const namespace = namespaceOf(object);
  const ports = (spec.ports ?? []).map((port): TargetPort => ({
    servicePort: port.port,
    name: port.name ?? null,
    target: port.targetPort ?? port.port,
    appProtocol: servicePortProtocol(port),
  }));
  const hostname = serviceHostname(metadata.name, namespace, mesh.domain);
  const selector = spec.selector ?? {};
  return {
    key: `${namespace}/${hostname}`,
    kind: 'Service',
    owner: `${namespace}/${metadata.name}`,
    created: metadata.creationTimestamp ?? '',
    selector: Object.keys(selector).length === 0 ? null : selector,
    ports,
    service: {
      name: metadata.name,
      namespace,
      hostname,
      addresses: clusterIps(object).map((ip) => ({ network: mesh.network, ip, length: null })),
      ports: Object.fromEntries(
        ports.map(({ servicePort, target }) => [
          servicePort,
          typeof target === 'number' ? target : 0,
        ]),
      ),
      subjectAltNames: [],
      waypoint: null,
      weightedWaypoints: [],
      loadBalancing: loadBalancingOf(object, facts, mesh),
      ipFamilies: familiesOf(object),
      canonical: true,
      visibility: 'PUBLIC',
    },
  };
}

/** The addresses of a Service in canonical form; none for a headless one. */
function clusterIps({ spec }: KubeService): string[] {
  const listed = spec.clusterIPs ?? (spec.clusterIP === undefined ? [] : [spec.clusterIP]);
  return listed.map(tryCanonicalIp).filter((ip) => ip !== null);
}

function loadBalancingOf(
  { spec, metadata }: KubeService,
  facts: NamespaceFacts,
  mesh: Mesh,
): LoadBalancing | null {
  const healthPolicy = spec.publishNotReadyAddresses === true ? 'ALLOW_ALL' : 'ONLY_HEALTHY';
  if (spec.internalTrafficPolicy === 'Local') {
    return { mode: 'STRICT', routingPreference: ['NODE'], healthPolicy };
  }
  const preferred = preferredScopes(
    [
      spec.trafficDistribution,
      metadata.annotations?.[DISTRIBUTION_ANNOTATION],
      facts.annotations[DISTRIBUTION_ANNOTATION],
    ],
    mesh,
  );
  if (preferred.length > 0) {
    return { mode: 'FAILOVER', routingPreference: preferred, healthPolicy };
  }
  return healthPolicy === 'ALLOW_ALL'
    ? { mode: 'UNSPECIFIED', routingPreference: [], healthPolicy }
    : null;
}

/** The families of a Service. PreferDualStack gives both families when the Service has addresses, or lists families, of both. */
function familiesOf(object: KubeService): Service['ipFamilies'] {
  const { ipFamilyPolicy, ipFamilies: listed = [] } = object.spec;
  const held = clusterIps(object).map((ip) => (ipFamily(ip) === 6 ? 'IPv6' : 'IPv4'));
  if (ipFamilyPolicy === 'RequireDualStack') return 'DUAL';
  if (ipFamilyPolicy === undefined && listed.length === 0) return 'AUTOMATIC';
  const families = new Set(ipFamilyPolicy === 'PreferDualStack' ? [...listed, ...held] : listed);
  if (families.size > 1) return 'DUAL';
  const [only] = families;
  if (only === undefined && ipFamilyPolicy === 'PreferDualStack') return 'DUAL';
  return only === 'IPv6' ? 'IPV6_ONLY' : 'IPV4_ONLY';
}

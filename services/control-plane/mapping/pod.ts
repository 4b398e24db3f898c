/** Pod → workload (docs/spec/istiod-ambient.md §1.1, §1.2). Pure. */
import { tryCanonicalIp } from '../../../lib/net/address.ts';
import type { PortMap, Workload } from '../../../lib/state/model.ts';
import type { Pod } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { canonicalName, canonicalRevision, podWorkloadName, tunnelOf } from './labels.ts';
import type { Mesh } from './mesh.ts';
import { podPorts } from './service-target.ts';
import type { ServiceTarget } from './service-target.ts';

/** The facts that a pod's workload depends on. */
export interface PodContext extends Pick<
  Workload,
  'waypoint' | 'networkGateway' | 'applicationTunnel' | 'locality'
> {
  readonly mesh: Mesh;
  /** The services of the pod. */
  readonly targets: readonly ServiceTarget[];
  readonly policies: readonly string[];
}

/** The workload of a pod; null while the pod has no address, and after it has ended. */
export function podWorkload(pod: Pod, context: PodContext): Workload | null {
  const phase = pod.status?.phase;
  const addresses = podAddresses(pod);
  if (phase === 'Failed' || phase === 'Succeeded' || addresses === null) return null;
  const { mesh } = context;
  const namespace = namespaceOf(pod);
  const labels = pod.metadata.labels ?? {};
  const workloadName = podWorkloadName(pod.metadata);
  return {
    uid: `${mesh.clusterId}//Pod/${namespace}/${pod.metadata.name}`,
    name: pod.metadata.name,
    namespace,
    addresses,
    hostname: '',
    network: mesh.network,
    ...tunnelOf(pod.metadata),
    trustDomain: mesh.trustDomain,
    serviceAccount: pod.spec.serviceAccountName ?? 'default',
    waypoint: context.waypoint,
    networkGateway: context.networkGateway,
    node: pod.spec.nodeName ?? '',
    canonicalName: canonicalName(labels, workloadName),
    canonicalRevision: canonicalRevision(labels),
    workloadType: 'pod',
    workloadName,
    applicationTunnel: context.applicationTunnel,
    services: Object.fromEntries(
      context.targets.map((target): [string, PortMap] => [target.key, podPorts(target, pod)]),
    ),
    authorizationPolicies: context.policies,
    status: isReady(pod) ? 'HEALTHY' : 'UNHEALTHY',
    clusterId: mesh.clusterId,
    locality: context.locality,
    networkMode: pod.spec.hostNetwork === true ? 'HOST_NETWORK' : 'STANDARD',
    capacity: 1,
  };
}

/** The pod's addresses, canonical and without duplicates; null without an address or when one cannot be read. */
function podAddresses(pod: Pod): string[] | null {
  const { podIPs = [], podIP } = pod.status ?? {};
  const given =
    podIPs.length === 0 && podIP !== undefined && podIP !== '' ? [{ ip: podIP }] : podIPs;
  const ips = given.map(({ ip }) => tryCanonicalIp(ip));
  if (ips.length === 0 || ips.includes(null)) return null;
  return [...new Set(ips.filter((ip) => ip !== null))];
}

/** Tells whether the pod takes traffic. */
export function isReady(pod: Pod): boolean {
  const ready = pod.status?.conditions?.find((condition) => condition.type === 'Ready');
  return ready?.status === 'True' && pod.metadata.deletionTimestamp === undefined;
}

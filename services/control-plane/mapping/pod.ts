/** Pod → workload (docs/spec/istiod-ambient.md §1.1, §1.2). Pure. */
import { tryCanonicalIp } from '../../../lib/net/address.ts';
import type { PortMap, Workload } from '../../../lib/state/model.ts';
import type { Pod } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { canonicalName, canonicalRevision, podWorkloadName, tunnelOf } from './labels.ts';
import type { WorkloadContext } from './external-workload.ts';
import { podPorts, targets } from './service-target.ts';
import type { ServiceTarget } from './service-target.ts';

/** The workload of a pod; null while the pod has no address, and after it has ended. */
export function podWorkload(
  pod: Pod,
  services: readonly ServiceTarget[],
  context: WorkloadContext,
): Workload | null {
  const phase = pod.status?.phase;
  const addresses = podAddresses(pod);
  if (phase === 'Failed' || phase === 'Succeeded' || addresses === null) return null;
  const { settings } = context;
  const namespace = namespaceOf(pod);
  const labels = pod.metadata.labels ?? {};
  const workloadName = podWorkloadName(pod.metadata);
  return {
    uid: `${settings.clusterId}//Pod/${namespace}/${pod.metadata.name}`,
    name: pod.metadata.name,
    namespace,
    addresses,
    hostname: '',
    network: context.network,
    ...tunnelOf(pod.metadata),
    trustDomain: settings.trustDomain,
    serviceAccount: pod.spec.serviceAccountName ?? 'default',
    waypoint: null,
    networkGateway: null,
    node: pod.spec.nodeName ?? '',
    canonicalName: canonicalName(labels, workloadName),
    canonicalRevision: canonicalRevision(labels),
    workloadType: 'pod',
    workloadName,
    applicationTunnel: null,
    services: Object.fromEntries(
      services
        .filter((target) => targets(target, labels))
        .map((target): [string, PortMap] => [target.key, podPorts(target, pod)]),
    ),
    authorizationPolicies: context.policiesFor(labels),
    status: isReady(pod) ? 'HEALTHY' : 'UNHEALTHY',
    clusterId: settings.clusterId,
    locality: { region: '', zone: '', subzone: '' },
    networkMode: pod.spec.hostNetwork === true ? 'HOST_NETWORK' : 'STANDARD',
    capacity: 1,
  };
}

/** The pod's addresses, canonical and without duplicates; null without an address or when one cannot be read. */
function podAddresses(pod: Pod): string[] | null {
  const ips = (pod.status?.podIPs ?? []).map(({ ip }) => tryCanonicalIp(ip));
  if (ips.length === 0 || ips.includes(null)) return null;
  return [...new Set(ips.filter((ip) => ip !== null))];
}

function isReady(pod: Pod): boolean {
  const ready = pod.status?.conditions?.find((condition) => condition.type === 'Ready');
  return ready?.status === 'True' && pod.metadata.deletionTimestamp === undefined;
}

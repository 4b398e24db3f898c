/** WorkloadEntry, or endpoint of a ServiceEntry → workload (docs/spec/istiod-ambient.md §1.3). Pure. */
import { tryCanonicalIp } from '../../../lib/net/address.ts';
import type { GatewayAddress, PortMap, Workload } from '../../../lib/state/model.ts';
import type { ServiceEntry, WorkloadEntry } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { canonicalName, canonicalRevision, tunnelOf } from './labels.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import type { Mesh } from './mesh.ts';

/** The facts that the workloads of an entry share. */
export interface WorkloadContext {
  readonly mesh: Mesh;
  /** Keys of the policies for the entry's labels, sorted. */
  readonly policies: readonly string[];
  /** The gateway of a network; null without one. */
  gatewayOf(network: string): GatewayAddress | null;
  /** How a workload with these labels is attached to waypoints. */
  attachmentOf(labels: Labels): Pick<Workload, 'waypoint' | 'applicationTunnel'>;
}

type Endpoint = Omit<WorkloadEntry['spec'], 'address'> & { readonly address: string };

const UNATTACHED = { waypoint: null, applicationTunnel: null };
const WORKLOAD_NAME_LABEL = 'service.istio.io/workload-name';
const GROUP_ANNOTATION = 'istio.io/autoRegistrationGroup';

/** The labels that services and policies select a WorkloadEntry by; those of the metadata come first. */
export function workloadEntryLabels(entry: WorkloadEntry): Labels {
  return { ...entry.spec.labels, ...entry.metadata.labels };
}

/** The workload of one endpoint of `entry`. The entry's labels decide names and policies. */
export function externalWorkload(
  entry: WorkloadEntry | ServiceEntry,
  endpoint: Endpoint,
  context: WorkloadContext,
  parts: {
    readonly uidKind: 'WorkloadEntry' | 'ServiceEntry';
    readonly services: Readonly<Record<string, PortMap>>;
    /** The labels that may name a waypoint; null for a workload without one. */
    readonly bindingLabels: Labels | null;
  },
): Workload {
  const { mesh } = context;
  const namespace = namespaceOf(entry);
  const { name } = entry.metadata;
  const labels =
    entry.kind === 'WorkloadEntry' ? workloadEntryLabels(entry) : (entry.metadata.labels ?? {});
  const ip = tryCanonicalIp(endpoint.address);
  const hostname = ip === null ? endpoint.address.toLowerCase() : '';
  const uid = `${mesh.clusterId}/networking.istio.io/${parts.uidKind}/${namespace}/${name}`;
  const workloadName = externalName(entry, labels);
  const reach = tunnelOf({ labels, annotations: entry.metadata.annotations });
  const network = endpoint.network ?? mesh.network;
  const [region = '', zone = '', subzone = ''] = (endpoint.locality ?? '').split('/');
  return {
    uid: parts.uidKind === 'ServiceEntry' ? `${uid}/${ip ?? hostname}` : uid,
    name,
    namespace,
    addresses: ip === null ? [] : [ip],
    hostname,
    network,
    ...reach,
    trustDomain: mesh.trustDomain,
    serviceAccount: endpoint.serviceAccount ?? '',
    ...(parts.bindingLabels === null ? UNATTACHED : context.attachmentOf(parts.bindingLabels)),
    networkGateway: context.gatewayOf(network),
    node: '',
    canonicalName: canonicalName(labels, workloadName),
    canonicalRevision: canonicalRevision(labels),
    workloadType: 'pod',
    workloadName,
    services: parts.services,
    authorizationPolicies: context.policies,
    status: 'HEALTHY',
    clusterId: mesh.clusterId,
    locality: { region, zone, subzone },
    networkMode: 'STANDARD',
    // In a manifest 0 means unset.
    capacity: endpoint.weight === undefined || endpoint.weight === 0 ? 1 : endpoint.weight,
  };
}

function externalName(entry: WorkloadEntry | ServiceEntry, labels: Labels): string {
  const group =
    entry.kind === 'WorkloadEntry' ? entry.metadata.annotations?.[GROUP_ANNOTATION] : undefined;
  return group ?? labels[WORKLOAD_NAME_LABEL] ?? entry.metadata.name;
}

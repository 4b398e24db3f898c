/** EndpointSlice → the part that pods do not tell (docs/spec/istiod-ambient.md §1.2, §1.3). Pure. */
import { tryCanonicalIp } from '../../../lib/net/address.ts';
import type { PortMap, Workload } from '../../../lib/state/model.ts';
import type { EndpointSlice } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { bareWorkload } from './bare-workload.ts';
import type { Mesh } from './mesh.ts';
import type { ServiceTarget } from './service-target.ts';

/** The label that names the Service of a slice. */
export const SERVICE_LABEL = 'kubernetes.io/service-name';

/** The endpoints of a slice that count. */
export interface SliceEndpoints {
  readonly namespace: string;
  readonly name: string;
  readonly target: ServiceTarget;
  /** Pods that a Service without a selector names. */
  readonly pods: readonly { readonly name: string; readonly uid: string | undefined }[];
  /** Endpoints that are no pods. */
  readonly others: readonly {
    readonly address: string;
    readonly addresses: readonly string[];
    readonly ready: boolean;
  }[];
  readonly ports: PortMap;
}

type Endpoint = NonNullable<EndpointSlice['endpoints']>[number];

/** The endpoints of a slice of the target; undefined when none counts. */
export function sliceEndpoints(
  slice: EndpointSlice,
  target: ServiceTarget,
): SliceEndpoints | undefined {
  if (slice.addressType === 'FQDN') return undefined;
  const endpoints = slice.endpoints ?? [];
  const pods =
    target.selector === null
      ? endpoints.filter(isPod).map(({ targetRef }) => ({
          name: targetRef?.name ?? '',
          uid: targetRef?.uid,
        }))
      : [];
  const others = othersOf(endpoints.filter((endpoint) => !isPod(endpoint)));
  if (pods.length === 0 && others.length === 0) return undefined;
  return {
    namespace: namespaceOf(slice),
    name: slice.metadata.name,
    target,
    pods,
    others,
    ports: portsOf(slice, target),
  };
}

/** The workloads of the endpoints that are no pods. Their addresses may be shared, so they count as a host's. */
export function sliceWorkloads(slice: SliceEndpoints, mesh: Mesh): Workload[] {
  const { namespace, name, target, ports } = slice;
  return slice.others.map(({ address, addresses, ready }) =>
    bareWorkload(mesh, {
      uid: `${mesh.clusterId}/discovery.k8s.io/EndpointSlice/${namespace}/${name}/${address}`,
      name,
      namespace,
      addresses,
      services: { [target.key]: ports },
      status: ready ? 'HEALTHY' : 'UNHEALTHY',
      networkMode: 'HOST_NETWORK',
    }),
  );
}

function isPod({ targetRef }: Endpoint): boolean {
  return targetRef?.kind === 'Pod';
}

function othersOf(endpoints: readonly Endpoint[]): SliceEndpoints['others'] {
  const byAddress = new Map<string, SliceEndpoints['others'][number]>();
  for (const { addresses, conditions } of endpoints) {
    const [address] = addresses;
    if (address === undefined || byAddress.has(address)) continue;
    const ips = addresses.map(tryCanonicalIp).filter((ip) => ip !== null);
    if (ips.length < addresses.length) continue;
    byAddress.set(address, { address, addresses: ips, ready: conditions?.ready !== false });
  }
  return [...byAddress.values()];
}

/** Service port → port of the slice with the same name. */
function portsOf(slice: EndpointSlice, target: ServiceTarget): PortMap {
  const map: Record<number, number> = {};
  for (const { name, port, protocol } of slice.ports ?? []) {
    if (port === undefined || (protocol ?? 'TCP') !== 'TCP') continue;
    const own = target.ports.find((candidate) => (candidate.name ?? '') === (name ?? ''));
    if (own !== undefined) map[own.servicePort] = port;
  }
  return map;
}

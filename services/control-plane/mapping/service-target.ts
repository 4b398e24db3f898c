/** Services with their selectors and target ports (docs/spec/istiod-ambient.md §1.2). Pure. */
import type { PortMap, Service } from '../../../lib/state/model.ts';
import { compareText } from '../../../lib/collections/compare.ts';
import type { AppProtocol, AppProtocols } from '../../../lib/xds/resources/fields.ts';
import type { Pod, WorkloadEntry } from '../manifests/kinds.ts';
import { selectsLabels } from '../../../lib/kubernetes/label-selector.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';

/** One port of a service. */
export interface TargetPort {
  readonly servicePort: number;
  readonly name: string | null;
  /** A port number, the name of a port of the workload, or null when the definition has no target. */
  readonly target: number | string | null;
  readonly appProtocol: AppProtocol;
}

/** A service with its selector. */
export interface ServiceTarget {
  /** `namespace/hostname`. */
  readonly key: string;
  readonly kind: 'Service' | 'ServiceEntry';
  /** `namespace/name` of the object that defines it. */
  readonly owner: string;
  /** Time of creation of the owner, RFC 3339; empty when unknown. */
  readonly created: string;
  /** The service without its waypoints. */
  readonly service: Service;
  /** Null selects no workload. */
  readonly selector: Labels | null;
  readonly ports: readonly TargetPort[];
}

/** True when the target selects a workload with these labels. */
export function targets(target: ServiceTarget, labels: Labels): boolean {
  return target.selector !== null && selectsLabels(target.selector, labels);
}

/** Compares claims to one host: the older owner comes first, and among owners of one age the first name. */
export function byClaim(left: ServiceTarget, right: ServiceTarget): number {
  const age = compareText(left.created, right.created);
  return age === 0 ? compareText(left.owner, right.owner) : age;
}

/** The application protocols of the ports of these targets. */
export function protocolsOf(all: readonly ServiceTarget[]): AppProtocols {
  const known = PROTOCOLS.get(all);
  if (known !== undefined) return known;
  const byKey = new Map(
    all.map((target) => [
      target.key,
      new Map(target.ports.map((port) => [port.servicePort, port.appProtocol])),
    ]),
  );
  const protocols: AppProtocols = (key, port) => byKey.get(key)?.get(port) ?? 'UNKNOWN';
  PROTOCOLS.set(all, protocols);
  return protocols;
}

/** Pods with equal labels share their list of targets. */
const PROTOCOLS = new WeakMap<readonly ServiceTarget[], AppProtocols>();

/** The ports of a pod behind a service, without named ports that the pod lacks. */
export function podPorts(target: ServiceTarget, pod: Pod): PortMap {
  return portMap(target, (port) => {
    if (target.kind === 'ServiceEntry') {
      const named = port.name === null ? null : containerPort(pod, port.name);
      return named ?? numberOr(port.target, port.servicePort);
    }
    if (typeof port.target === 'string') return containerPort(pod, port.target);
    return port.target ?? port.servicePort;
  });
}

/**
 * The ports of a WorkloadEntry or inline endpoint behind a service. A Service may name its target port; the port is left
 * out when the endpoint lacks that name. Otherwise the endpoint's port with the name of the service's port counts.
 */
export function endpointPorts(
  target: ServiceTarget,
  ports: WorkloadEntry['spec']['ports'],
): PortMap {
  const byName = new Map(Object.entries(ports ?? {}));
  return portMap(target, (port) => {
    if (typeof port.target === 'string') return byName.get(port.target) ?? null;
    const own = port.name === null ? undefined : byName.get(port.name);
    return own ?? port.target ?? port.servicePort;
  });
}

function portMap(
  target: ServiceTarget,
  targetOf: (port: TargetPort) => number | null,
): Record<number, number> {
  const map: Record<number, number> = {};
  for (const port of target.ports) {
    const number = targetOf(port);
    if (number !== null) map[port.servicePort] = number;
  }
  return map;
}

function numberOr(target: TargetPort['target'], otherwise: number): number {
  return typeof target === 'number' ? target : otherwise;
}

/** The number of a named TCP port: of the containers first, then of init containers that keep running. */
function containerPort(pod: Pod, name: string): number | null {
  const restartable = (pod.spec.initContainers ?? []).filter(
    (container) => container.restartPolicy === 'Always',
  );
  for (const container of [...pod.spec.containers, ...restartable]) {
    const port = container.ports?.find(
      (candidate) => candidate.name === name && (candidate.protocol ?? 'TCP') === 'TCP',
    );
    if (port !== undefined) return port.containerPort;
  }
  return null;
}

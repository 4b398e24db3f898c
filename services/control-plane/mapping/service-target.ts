/** Services with their selectors and target ports (docs/spec/istiod-ambient.md §1.2). Pure. */
import type { PortMap, Service } from '../../../lib/state/model.ts';
import type { AppProtocol } from '../../../lib/xds/resources/fields.ts';
import type { Pod, WorkloadEntry } from '../manifests/kinds.ts';
import type { Labels } from './labels.ts';

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
  readonly service: Service;
  /** Null selects no workload. */
  readonly selector: Labels | null;
  readonly ports: readonly TargetPort[];
}

/** True when the target selects a workload with these labels. */
export function targets(target: ServiceTarget, labels: Labels): boolean {
  const { selector } = target;
  return (
    selector !== null && Object.entries(selector).every(([key, value]) => labels[key] === value)
  );
}

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
 * out when the endpoint lacks that name. A ServiceEntry has no such names, so the endpoint's port of its own name counts.
 */
export function endpointPorts(
  target: ServiceTarget,
  ports: WorkloadEntry['spec']['ports'],
): PortMap {
  const byName = new Map(Object.entries(ports ?? {}));
  return portMap(target, (port) => {
    if (typeof port.target === 'string') return byName.get(port.target) ?? null;
    const own =
      target.kind === 'ServiceEntry' && port.name !== null ? byName.get(port.name) : undefined;
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

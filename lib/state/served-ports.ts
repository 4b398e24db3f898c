import { serviceKey } from './model.ts';
import type { PortMap, Service, Workload } from './model.ts';

/** Target ports of the maps seen so far: an arrival looks through those of each service of its pod. */
const targets = new WeakMap<PortMap, ReadonlySet<number>>();

/** Returns true when a service leads to the port of the workload, by its own ports or by those that the workload names. */
export function leadsToPort(service: Service, workload: Workload, port: number): boolean {
  if (targetsOf(service.ports).has(port)) return true;
  const own = workload.services[serviceKey(service)];
  return own !== undefined && targetsOf(own).has(port);
}

function targetsOf(ports: PortMap): ReadonlySet<number> {
  let found = targets.get(ports);
  if (found === undefined) {
    found = new Set(Object.values(ports));
    targets.set(ports, found);
  }
  return found;
}

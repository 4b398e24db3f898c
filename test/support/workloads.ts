/** Workloads and services with plain values: no addresses, names or revisions that a test has not asked for. */
import type { Service, Workload } from '../../lib/state/model.ts';
import { serviceFixture, workloadFixture } from './model-fixtures.ts';

/** A workload with plain values, changed by `parts`. */
export function workload(parts: Partial<Workload> = {}): Workload {
  return workloadFixture({
    uid: 'cluster//Pod/demo/web-1',
    addresses: ['10.128.0.2'],
    canonicalName: '',
    canonicalRevision: '',
    workloadType: 'deployment',
    workloadName: '',
    clusterId: '',
    ...parts,
  });
}

/** A service with plain values, changed by `parts`. */
export function service(parts: Partial<Service> = {}): Service {
  return serviceFixture({ addresses: [], canonical: false, ...parts });
}

/** Makes workloads and services with plain values, without addresses, names or revisions that the test does not set. */
import type { Service, Workload } from '../../lib/state/model.ts';
import { serviceFixture, workloadFixture } from './model-fixtures.ts';

/** Makes a workload with plain values, changed by `parts`. */
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

/** Makes a service with plain values, changed by `parts`. */
export function service(parts: Partial<Service> = {}): Service {
  return serviceFixture({ addresses: [], canonical: false, ...parts });
}

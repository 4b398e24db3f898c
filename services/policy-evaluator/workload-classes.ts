import type { PolicySubject } from '../../lib/policy/policy-store.ts';
import type { AddressResource } from '../../lib/state/packed-store.ts';

/** Workloads that the same policies bind. */
export interface WorkloadClass {
  readonly subject: PolicySubject;
  workloads: number;
}

/** Groups workloads by what decides their policies, so that 100,000 pods are a few computations. */
export class WorkloadClasses {
  readonly #classes = new Map<string, WorkloadClass>();
  #workloads = 0;

  /** Workloads counted. */
  get workloads(): number {
    return this.#workloads;
  }

  /** The classes that have workloads. */
  values(): Iterable<WorkloadClass> {
    return this.#classes.values();
  }

  /** A row held this and now holds that. True when the set of classes changed. */
  replace(before: AddressResource | undefined, after: AddressResource | undefined): boolean {
    const added = this.#add(after);
    const removed = this.#remove(before);
    return added || removed;
  }

  #add(resource: AddressResource | undefined): boolean {
    if (resource?.kind !== 'workload') return false;
    const { namespace, authorizationPolicies } = resource.workload;
    const key = classKey(resource.workload);
    this.#workloads += 1;
    const known = this.#classes.get(key);
    if (known !== undefined) {
      known.workloads += 1;
      return false;
    }
    const subject = { namespace, authorizationPolicies };
    this.#classes.set(key, { subject, workloads: 1 });
    return true;
  }

  #remove(resource: AddressResource | undefined): boolean {
    if (resource?.kind !== 'workload') return false;
    const key = classKey(resource.workload);
    const known = this.#classes.get(key);
    if (known === undefined) return false;
    this.#workloads -= 1;
    known.workloads -= 1;
    if (known.workloads > 0) return false;
    this.#classes.delete(key);
    return true;
  }
}

function classKey({ namespace, authorizationPolicies }: PolicySubject): string {
  return JSON.stringify([namespace, ...authorizationPolicies]);
}

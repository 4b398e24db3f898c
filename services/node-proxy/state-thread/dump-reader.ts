import type { PolicyStore } from '../../../lib/policy/policy-store.ts';
import { serviceKey } from '../../../lib/state/model.ts';
import type { PackedStore } from '../../../lib/state/packed-store.ts';
import { dumpPolicy } from '../dump/policy.ts';
import { dumpService } from '../dump/service.ts';
import { dumpWorkload } from '../dump/workload.ts';
import { DUMP_OBJECTS_PER_MESSAGE } from '../limits.ts';
import type { DumpSection } from './protocol.ts';
import { Slicer } from './slicer.ts';

/** Reads the state out for a config dump, without holding up lookups. */
export class DumpReader {
  readonly #store: PackedStore;
  readonly #policies: PolicyStore;

  constructor(store: PackedStore, policies: PolicyStore) {
    this.#store = store;
    this.#policies = policies;
  }

  /** The objects of a section in batches; what changes meanwhile may be in it in either form. */
  async *read(section: DumpSection): AsyncGenerator<readonly unknown[]> {
    const slicer = new Slicer();
    let batch: unknown[] = [];
    for (const object of this.#objects(section)) {
      batch.push(object);
      if (batch.length >= DUMP_OBJECTS_PER_MESSAGE) {
        yield batch;
        batch = [];
      }
      await slicer.breathe();
    }
    if (batch.length > 0) yield batch;
  }

  *#objects(section: DumpSection): Generator<unknown> {
    if (section === 'policies') {
      for (const { policy } of this.#policies.policies()) yield dumpPolicy(policy);
      return;
    }
    // The names as they are now: a walk over the rows themselves would meet those that change again and again.
    const seen = new Set<string>();
    const names = [...this.#store.names()];
    for (const name of names) {
      const resource = this.#store.resource(name);
      if (resource === undefined) continue;
      const identity =
        resource.kind === 'workload' ? resource.workload.uid : serviceKey(resource.service);
      if (seen.has(identity)) continue;
      seen.add(identity);
      if (resource.kind === 'workload') {
        if (section === 'workloads') yield dumpWorkload(resource.workload);
      } else if (section === 'services') {
        const service = this.#store.service(identity);
        if (service !== undefined) yield dumpService(service);
      }
    }
  }
}

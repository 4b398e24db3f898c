import type { PolicyStore } from '../../../lib/policy/policy-store.ts';
import { serviceKey } from '../../../lib/state/model.ts';
import type { PackedStore } from '../../../lib/state/packed-store.ts';
import { dumpPolicy } from '../dump/policy.ts';
import { dumpService } from '../dump/service.ts';
import { dumpWorkload } from '../dump/workload.ts';
import { DUMP_OBJECTS_PER_MESSAGE, STATE_SLICE_MS } from '../limits.ts';
import type { DumpSection } from './protocol.ts';
import { slicedSort } from './sliced-sort.ts';
import { TimeSlice } from '../../../lib/async/time-slice.ts';

/** What is listed, and what it is sorted by. */
interface Entry {
  readonly order: string;
  /** The object as it is when its turn comes; null when it is gone by then. */
  read(): object | null;
}

/** Reads the state out for a config dump, without holding up lookups. */
export class DumpReader {
  readonly #store: PackedStore;
  readonly #policies: PolicyStore;

  constructor(store: PackedStore, policies: PolicyStore) {
    this.#store = store;
    this.#policies = policies;
  }

  /**
   * The objects of a section in their order, as texts: JSON objects with commas between them, some in each text. What
   * changes meanwhile may be in it in either form.
   */
  async *read(section: DumpSection): AsyncGenerator<string> {
    const slice = new TimeSlice(STATE_SLICE_MS);
    const breathe = (): Promise<void> => slice.breathe();
    const entries: Entry[] = [];
    for (const entry of section === 'policies' ? this.#policyEntries() : this.#resources(section)) {
      if (entry !== null) entries.push(entry);
      await breathe();
    }
    let batch: string[] = [];
    for (const entry of await slicedSort(entries, byOrder, breathe)) {
      const object = entry.read();
      if (object !== null) batch.push(JSON.stringify(object));
      if (batch.length >= DUMP_OBJECTS_PER_MESSAGE) {
        yield batch.join(',');
        batch = [];
      }
      await breathe();
    }
    if (batch.length > 0) yield batch.join(',');
  }

  *#policyEntries(): Generator<Entry> {
    for (const { key, policy } of this.#policies.policies()) {
      yield { order: key, read: () => dumpPolicy(policy) };
    }
  }

  /** Null for rows of the other section, which take time too. */
  *#resources(section: 'workloads' | 'services'): Generator<Entry | null> {
    // The names as they are now: a walk over the rows themselves would meet those that change again and again.
    const seen = new Set<string>();
    const names = [...this.#store.names()];
    for (const name of names) {
      const resource = this.#store.resource(name);
      const wanted = resource?.kind === (section === 'workloads' ? 'workload' : 'service');
      if (resource === undefined || !wanted) {
        yield null;
        continue;
      }
      const identity =
        resource.kind === 'workload' ? resource.workload.uid : serviceKey(resource.service);
      if (seen.has(identity)) continue;
      seen.add(identity);
      yield resource.kind === 'workload'
        ? { order: identity, read: () => this.#workload(name) }
        : { order: resource.service.hostname, read: () => this.#service(identity) };
    }
  }

  #workload(name: string): object | null {
    const resource = this.#store.resource(name);
    return resource?.kind === 'workload' ? dumpWorkload(resource.workload) : null;
  }

  #service(key: string): object | null {
    const service = this.#store.service(key);
    return service === undefined ? null : dumpService(service);
  }
}

function byOrder(left: Entry, right: Entry): number {
  if (left.order === right.order) return 0;
  return left.order < right.order ? -1 : 1;
}

import { TimeSlice } from '../../../lib/async/time-slice.ts';
import { compareText } from '../../../lib/collections/compare.ts';
import type { PolicyStore } from '../../../lib/policy/policy-store.ts';
import { serviceKey } from '../../../lib/state/model.ts';
import type { PackedStore } from '../../../lib/state/packed-store.ts';
import { dumpPolicy } from '../dump/policy.ts';
import { dumpService } from '../dump/service.ts';
import { dumpWorkload } from '../dump/workload.ts';
import { DUMP_OBJECTS_PER_MESSAGE, STATE_SLICE_MS } from '../limits.ts';
import type { DumpSection } from './protocol.ts';
import { slicedSort } from './sliced-sort.ts';

/** An object of a dump, with the key it is sorted by. */
interface Entry {
  readonly order: string;
  /** Returns the object as it is now; null when it is gone. */
  read(): object | null;
}

/**
 * Reads a section of the state for a config dump, in slices, so that lookups do not wait. Yields the objects in their order as
 * texts: JSON objects with commas between them, some in each text. An object that changes meanwhile may be in either form.
 */
export async function* readDump(
  store: PackedStore,
  policies: PolicyStore,
  section: Exclude<DumpSection, 'names'>,
): AsyncGenerator<string> {
  const slice = new TimeSlice(STATE_SLICE_MS);
  const breathe = (): Promise<void> => slice.breathe();
  const entries: Entry[] = [];
  const found = section === 'policies' ? policyEntries(policies) : resources(store, section);
  for (const entry of found) {
    if (entry !== null) entries.push(entry);
    await breathe();
  }
  let batch: string[] = [];
  for (const entry of await slicedSort(entries, (a, b) => compareText(a.order, b.order), breathe)) {
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

function* policyEntries(policies: PolicyStore): Generator<Entry> {
  for (const { key, policy } of policies.policies()) {
    yield { order: key, read: () => dumpPolicy(policy) };
  }
}

/** Yields null for rows of the other section, which take time too. */
function* resources(
  store: PackedStore,
  section: 'workloads' | 'services',
): Generator<Entry | null> {
  // A copy of the names: a walk over the rows themselves would meet rows that change again and again.
  const seen = new Set<string>();
  const names = [...store.names()];
  for (const name of names) {
    const resource = store.resource(name);
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
      ? { order: identity, read: () => readWorkload(store, name) }
      : { order: resource.service.hostname, read: () => readService(store, identity) };
  }
}

function readWorkload(store: PackedStore, name: string): object | null {
  const resource = store.resource(name);
  return resource?.kind === 'workload' ? dumpWorkload(resource.workload) : null;
}

function readService(store: PackedStore, key: string): object | null {
  const service = store.service(key);
  return service === undefined ? null : dumpService(service);
}

/** Makes workloads and services with sensible values, and views of a mesh of them. */
import type { Service, Workload } from '../../lib/state/model.ts';
import { PackedStore } from '../../lib/state/packed-store.ts';
import type { LookupKey, MeshView } from '../../lib/state/view.ts';
import { lookupId } from '../../lib/state/view.ts';
import {
  decodeAddress,
  encodeService,
  encodeWorkload,
  resourceName,
} from '../../lib/xds/resources/address.ts';
import { serviceFixture, workloadFixture } from './model-fixtures.ts';

/** Makes an HBONE pod of `demo` on node-1. */
export function workload(overrides: Partial<Workload> & { readonly uid: string }): Workload {
  return workloadFixture({
    name: overrides.uid.slice(overrides.uid.lastIndexOf('/') + 1),
    addresses: [],
    serviceAccount: 'default',
    canonicalName: '',
    canonicalRevision: '',
    workloadName: '',
    ...overrides,
  });
}

/** Makes a service of `demo`. */
export function service(overrides: Partial<Service> & { readonly hostname: string }): Service {
  const name = overrides.hostname.split('.')[0] ?? '';
  return serviceFixture({ name, addresses: [], canonical: false, ...overrides });
}

/** Makes a VIP. */
export function vip(ip: string, network = '', length: number | null = null) {
  return { network, ip, length };
}

/** Makes a store that holds the resources under their own names. */
export function storeOf(resources: readonly (Workload | Service)[]): PackedStore {
  const store = new PackedStore(decodeAddress);
  for (const resource of resources) store.apply(resourceName(resource), encode(resource));
  return store;
}

/** Encodes a resource. */
export function encode(resource: Workload | Service): Uint8Array {
  return 'uid' in resource ? encodeWorkload(resource) : encodeService(resource);
}

/** Makes a view that knows the whole mesh. */
export function viewOf(resources: readonly (Workload | Service)[]): MeshView {
  const store = storeOf(resources);
  return { get: (key) => store.lookup(key) };
}

/** The view of a listener thread: it knows only fetched resources. */
export class FetchedView implements MeshView {
  readonly #store: PackedStore;
  readonly #fetched = new Set<string>();

  constructor(resources: readonly (Workload | Service)[]) {
    this.#store = storeOf(resources);
  }

  get(key: LookupKey) {
    return this.#fetched.has(lookupId(key)) ? this.#store.lookup(key) : undefined;
  }

  fetch(keys: readonly LookupKey[]): void {
    for (const key of keys) this.#fetched.add(lookupId(key));
  }
}

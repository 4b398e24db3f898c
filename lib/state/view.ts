import type { ServiceWithEndpoints } from './endpoint-set.ts';
import type { Service, Workload } from './model.ts';

/**
 * A lookup in the mesh state. Routing decisions use the answers. A listener thread caches and drops answers by key.
 */
export type LookupKey =
  /** Workloads (best rank first) that have the address, and services whose VIP or CIDR holds it. */
  | { readonly kind: 'address'; readonly network: string; readonly ip: string }
  /** The service with exactly this namespace and hostname, and a workload with that hostname. */
  | { readonly kind: 'service'; readonly namespace: string; readonly hostname: string }
  /** Every service with this hostname, whatever its namespace. */
  | { readonly kind: 'hostname'; readonly hostname: string }
  /** The workload with this uid. */
  | { readonly kind: 'uid'; readonly uid: string };

/** The answer to a {@link LookupKey}; empty lists mean "known not to exist". */
export interface Answer {
  readonly workloads: readonly Workload[];
  /** Sorted by key, endpoints by uid; the caller ranks them and checks visibility (docs/spec/dataplane.md §3). */
  readonly services: readonly ServiceWithEndpoints[];
}

/** An {@link Answer} without the endpoints of its services. */
export interface AnswerHead {
  readonly workloads: readonly Workload[];
  readonly services: readonly Service[];
}

/**
 * Synchronous access to the mesh state. `undefined` means "cannot tell yet": the key must be fetched before a decision. An
 * {@link Answer} with empty lists means that nothing has the key.
 */
export interface MeshView {
  get(key: LookupKey): Answer | undefined;
}

/** Returns the text form of a key, for maps and invalidation. */
export function lookupId(key: LookupKey): string {
  switch (key.kind) {
    case 'address':
      return `address:${key.network}/${key.ip}`;
    case 'service':
      return `service:${key.namespace}/${key.hostname}`;
    case 'hostname':
      return `hostname:${key.hostname}`;
    case 'uid':
      return `uid:${key.uid}`;
  }
}

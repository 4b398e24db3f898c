/** Collects the lookups of one decision, and ranks their answers (docs/spec/dataplane.md §3). */
import { parseIp } from '../net/address.ts';
import { prefixContains } from '../net/prefix.ts';
import type { ServiceWithEndpoints } from './endpoint-set.ts';
import type { NetworkAddress, Service, Workload } from './model.ts';
import { rangeOf } from './range.ts';
import { lookupId } from './view.ts';
import type { Answer, LookupKey, MeshView } from './view.ts';

/** The keys that must be fetched before the decision. */
export interface Need {
  readonly kind: 'need';
  readonly keys: readonly LookupKey[];
}

/** Asks the view and collects the missing keys, so that one fetch brings several answers. */
export class Lookups {
  readonly #view: MeshView;
  readonly #missing = new Map<string, LookupKey>();

  constructor(view: MeshView) {
    this.#view = view;
  }

  /** Returns the answer; null when it must be fetched first. */
  get(key: LookupKey): Answer | null {
    const answer = this.#view.get(key);
    if (answer !== undefined) return answer;
    this.#missing.set(lookupId(key), key);
    return null;
  }

  /** The keys that had no answer. */
  need(): Need {
    return { kind: 'need', keys: [...this.#missing.values()] };
  }
}

/** Returns the workload of an address, null when there is none; answers are sorted best first. */
export function workloadOf(answer: Answer): Workload | null {
  return answer.workloads[0] ?? null;
}

/**
 * Returns the service of a virtual address for a client of `namespace`: one with exactly this address, else one with a range
 * around it. Services that are not visible to the namespace do not count. With null as namespace, all services are visible.
 */
export function serviceByAddress(
  services: readonly ServiceWithEndpoints[],
  network: string,
  ip: string,
  namespace: string | null,
): ServiceWithEndpoints | null {
  const visible = services.filter(({ service }) => isVisible(service, namespace));
  const exact = visible.filter(({ service }) =>
    service.addresses.some(
      (address) => address.network === network && address.ip === ip && rangeOf(address) === null,
    ),
  );
  if (exact.length > 0) return preferred(exact, namespace);
  return bestRange(visible, network, ip, namespace);
}

/** Returns the service of a hostname for a workload of `namespace`, ranked as {@link serviceByAddress} ranks exact addresses. */
export function serviceByHostname(
  services: readonly ServiceWithEndpoints[],
  namespace: string,
): ServiceWithEndpoints | null {
  return preferred(
    services.filter(({ service }) => isVisible(service, namespace)),
    namespace,
  );
}

function isVisible(service: Service, namespace: string | null): boolean {
  return namespace === null || service.visibility === 'PUBLIC' || service.namespace === namespace;
}

/** Prefers the service in the namespace, else the last canonical one, else the first. */
function preferred(
  candidates: readonly ServiceWithEndpoints[],
  namespace: string | null,
): ServiceWithEndpoints | null {
  return (
    candidates.find(({ service }) => service.namespace === namespace) ??
    candidates.findLast(({ service }) => service.canonical) ??
    candidates[0] ??
    null
  );
}

/** Prefers services in the namespace, then longer prefixes, then canonical ones; the first wins ties. */
function bestRange(
  candidates: readonly ServiceWithEndpoints[],
  network: string,
  ip: string,
  namespace: string | null,
): ServiceWithEndpoints | null {
  let best: ServiceWithEndpoints | null = null;
  let bestRank: readonly number[] = [];
  for (const candidate of candidates) {
    const { service } = candidate;
    for (const address of service.addresses) {
      const length = containingLength(address, network, ip);
      if (length === null) continue;
      const rank = [Number(service.namespace === namespace), length, Number(service.canonical)];
      if (best !== null && !isHigher(rank, bestRank)) continue;
      best = candidate;
      bestRank = rank;
    }
  }
  return best;
}

function containingLength(address: NetworkAddress, network: string, ip: string): number | null {
  if (address.network !== network) return null;
  const range = rangeOf(address);
  return range !== null && prefixContains(range, parseIp(ip)) ? range.length : null;
}

function isHigher(left: readonly number[], right: readonly number[]): boolean {
  for (const [index, value] of left.entries()) {
    const difference = value - (right[index] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return false;
}

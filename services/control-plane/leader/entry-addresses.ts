/** Gives ServiceEntries without addresses virtual ones, in their status. */
import { isCode } from '../../../lib/kubernetes/status.ts';
import { apiVersionOf, resourcePath } from '../../../lib/kubernetes/resource.ts';
import type { ResourceType } from '../../../lib/kubernetes/resource.ts';
import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import { byAge, keyOf, kindResources, namespaceOf } from '../manifests/kinds.ts';
import type { KubeObject, ServiceEntry } from '../manifests/kinds.ts';
import { allocateEntryAddresses } from '../store/address-allocation.ts';
import type { AddressRanges } from '../store/address-allocation.ts';
import { autoAddresses } from '../store/addresses.ts';
import type { AutoAddress } from '../store/addresses.ts';
import type { LeaderDeps } from './status-writer.ts';

/** Owns the written addresses. */
const FIELD_MANAGER = 'weft-addresses';

const { group, version, plural, namespaced } = kindResources.ServiceEntry;
const ENTRIES: ResourceType = { group, versions: [version], plural, namespaced };

/** Allocates while it runs. Only the leader does so, or two replicas would give one address twice. */
export class EntryAddresses {
  readonly #deps: LeaderDeps;
  readonly #ranges: AddressRanges;
  /** Owners of addresses that are given but not seen in an object yet. */
  readonly #given = new Map<string, string>();

  constructor(ranges: AddressRanges, deps: LeaderDeps) {
    this.#ranges = ranges;
    this.#deps = deps;
  }

  /** Allocates for the present and the coming entries. The result ends that. */
  start(): () => void {
    const { source } = this.#deps;
    const end = source.onCommit((changes) => {
      for (const { before, after } of changes) {
        if (before?.kind === 'ServiceEntry') this.#forget(keyOf(before));
        if (after?.kind === 'ServiceEntry') this.#look(after);
      }
    });
    // The oldest first: of two entries with one address, it keeps it.
    for (const entry of [...source.objects.ofKind('ServiceEntry')].toSorted(byAge)) {
      this.#look(entry);
    }
    return end;
  }

  #forget(key: string): void {
    for (const [ip, owner] of this.#given) if (owner === key) this.#given.delete(ip);
  }

  #look(entry: ServiceEntry): void {
    const addresses = this.#decide(entry);
    if (addresses === null) return;
    const key = keyOf(entry);
    for (const { value } of addresses) this.#given.set(value, key);
    const { name } = entry.metadata;
    const namespace = namespaceOf(entry);
    this.#deps.writes.offer(`addresses ${key}`, (signal) =>
      this.#write(key, { name, namespace }, addresses, signal),
    );
  }

  /** The addresses that the entry should have; null when it has them, or when none is left. */
  #decide(entry: ServiceEntry): AutoAddress[] | null {
    const held = autoAddresses(entry);
    const kept = held.filter(({ value }) => !this.#isOthers(value, entry));
    const { objects } = this.#deps.source;
    const key = keyOf(entry);
    try {
      const next = autoAddresses(
        allocateEntryAddresses(
          { addressOwner: (ip) => this.#given.get(ip) ?? ownerKey(objects.addressHolder(ip)) },
          { ...entry, status: { ...entry.status, addresses: kept } },
          this.#ranges,
        ),
      );
      return JSON.stringify(next) === JSON.stringify(held) ? null : next;
    } catch (error) {
      const problem = asMeshError(error, 'STATE_CONFLICT').message;
      this.#deps.log.warn({ object: key, problem }, 'entry-addresses.refused');
      return null;
    }
  }

  /** True when an older entry has the address, too. */
  #isOthers(ip: string, entry: ServiceEntry): boolean {
    const other = this.#deps.source.objects.addressHolder(ip);
    if (other?.kind !== 'ServiceEntry' || keyOf(other) === keyOf(entry)) return false;
    return byAge(other, entry) < 0;
  }

  async #write(
    key: string,
    metadata: { readonly name: string; readonly namespace: string },
    addresses: readonly AutoAddress[],
    signal: AbortSignal,
  ): Promise<void> {
    const { client, log } = this.#deps;
    try {
      await client.apply(
        resourcePath(ENTRIES, { ...metadata, subresource: 'status' }),
        {
          apiVersion: apiVersionOf(ENTRIES),
          kind: 'ServiceEntry',
          metadata,
          ...(addresses.length === 0 ? {} : { status: { addresses } }),
        },
        { fieldManager: FIELD_MANAGER, signal },
      );
    } catch (error) {
      if (!isCode(error, 'KUBERNETES_CONFLICT', 'KUBERNETES_NOT_FOUND')) throw error;
      this.#forget(key);
      if (error.code === 'KUBERNETES_NOT_FOUND') return;
      log.warn({ object: key, problem: error.message }, 'entry-addresses.owned-by-another');
    }
  }
}

function ownerKey(holder: KubeObject | undefined): string | undefined {
  return holder === undefined ? undefined : keyOf(holder);
}

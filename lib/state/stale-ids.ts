import type { Prefix } from '../net/prefix.ts';
import type { AskedAddresses } from './id-index.ts';
import type { Service } from './model.ts';
import { rangeOf } from './range.ts';
import { lookupId } from './view.ts';
import type { LookupKey } from './view.ts';

/** Collects the answers, by lookup id, and the endpoints of services that a change makes stale. */
export class StaleIds {
  readonly #asked: AskedAddresses;
  readonly #ids = new Set<string>();
  /** Uids by the key of a service. */
  readonly #endpoints = new Map<string, Set<string>>();
  #all = false;

  constructor(asked: AskedAddresses) {
    this.#asked = asked;
  }

  /** Marks the answer to a lookup. */
  add(key: LookupKey): void {
    this.#ids.add(lookupId(key));
  }

  /** Marks every answer that names the service. */
  addService(service: Service): void {
    const { namespace, hostname } = service;
    this.add({ kind: 'service', namespace, hostname });
    this.add({ kind: 'hostname', hostname });
    for (const address of service.addresses) {
      const range = rangeOf(address);
      if (range === null) this.add({ kind: 'address', network: address.network, ip: address.ip });
      else this.#addRange(address.network, range);
    }
  }

  /** Marks one endpoint of a service, known or not. */
  addEndpoint(service: string, uid: string): void {
    const uids = this.#endpoints.get(service);
    if (uids === undefined) this.#endpoints.set(service, new Set([uid]));
    else uids.add(uid);
  }

  /** The ids of stale answers; null = all. */
  ids(): readonly string[] | null {
    return this.#all ? null : [...this.#ids];
  }

  /** Calls back once for each stale endpoint. */
  eachEndpoint(told: (service: string, uid: string) => void): void {
    for (const [service, uids] of this.#endpoints) for (const uid of uids) told(service, uid);
  }

  #addRange(network: string, range: Prefix): void {
    const inside = this.#asked.inside(network, range);
    if (inside === null) this.#all = true;
    for (const ip of inside ?? []) this.add({ kind: 'address', network, ip });
  }
}

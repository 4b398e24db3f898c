import { EndpointSet } from '../../lib/state/endpoint-set.ts';
import type { ServiceWithEndpoints } from '../../lib/state/endpoint-set.ts';
import type { Service } from '../../lib/state/model.ts';
import { serviceKey } from '../../lib/state/model.ts';
import { KEPT_SERVICES, MAX_HELD_ENDPOINTS } from './limits.ts';
import type { StateRequest, StateResponse } from './protocol/state.ts';

/** The cost of a service beside its endpoints: a service without any counts, too. */
const PER_SERVICE = 1;

/** The endpoints of one service. */
interface Held {
  readonly set: EndpointSet;
  /** The epoch under which the state thread tells of them. */
  readonly epoch: number;
}

/**
 * The endpoints of the services that a thread asked for, once for all answers that name a service. The state thread keeps
 * them as they are; nothing is asked for again when one changes.
 */
export class HeldEndpoints {
  readonly #send: (message: StateRequest) => void;
  readonly #limit: number;
  /** Endpoints by the key of the service; the one used longest ago comes first. */
  readonly #sets = new Map<string, Held>();
  #count = 0;

  constructor(send: (message: StateRequest) => void, limit = MAX_HELD_ENDPOINTS) {
    this.#send = send;
    this.#limit = limit;
  }

  /** Endpoints held, and services. */
  get count(): number {
    return this.#count;
  }

  /** Takes in a message. The next one comes in another turn of the loop, so that connections are served in between. */
  take({ service, epoch, anew, endpoints }: Extract<StateResponse, { type: 'endpoints' }>): void {
    if (anew !== null) {
      this.#forget(service);
      this.#sets.set(service, { set: new EndpointSet(anew.balancing), epoch });
      this.#count += PER_SERVICE;
    }
    const set = this.#sets.get(service)?.set;
    if (set !== undefined) {
      this.#count -= set.size;
      for (const [uid, endpoint] of endpoints) {
        if (endpoint === null) set.delete(uid);
        else set.put(endpoint);
      }
      this.#count += set.size;
    }
    setImmediate(() => this.#send({ type: 'endpoints.taken', service, epoch }));
  }

  /** The endpoints of a service that an answer names; null when they were given up since it was asked for. */
  of(service: Service): EndpointSet | null {
    const key = serviceKey(service);
    const held = this.#sets.get(key);
    if (held === undefined) return null;
    this.#touch(key, held);
    return held.set;
  }

  /** Notes that an answer that names the services is used. */
  used(services: readonly ServiceWithEndpoints[]): void {
    // With fewer endpoints nothing is given up soon, so that it does not matter yet which ones were used last.
    if (this.#count < this.#limit / 2) return;
    for (const { service, endpoints } of services) {
      const key = serviceKey(service);
      const held = this.#sets.get(key);
      if (held?.set === endpoints) this.#touch(key, held);
    }
  }

  /** Gives up what was used longest ago while there is too much; what one decision may need stays. */
  shrink(): ReadonlySet<EndpointSet> {
    const gone = new Set<EndpointSet>();
    for (const [key, { set, epoch }] of this.#sets) {
      if (this.#count <= this.#limit || this.#sets.size <= KEPT_SERVICES) break;
      this.#forget(key);
      this.#send({ type: 'endpoints.release', service: key, epoch });
      gone.add(set);
    }
    return gone;
  }

  /** Moves it to the young end of the map: what is given up is taken from the old one. */
  #touch(key: string, held: Held): void {
    this.#sets.delete(key);
    this.#sets.set(key, held);
  }

  #forget(key: string): void {
    const held = this.#sets.get(key);
    if (held === undefined) return;
    this.#sets.delete(key);
    this.#count -= held.set.size + PER_SERVICE;
  }
}

/** Measures the cost of a service with many endpoints: a pick, and a changed endpoint on the thread that receives it. */
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import { STATE_SLICE_MS } from '../../../services/node-proxy/limits.ts';
import { pickEndpoint } from '../../../lib/state/load-balance.ts';
import type { Service } from '../../../lib/state/model.ts';
import { serviceKey } from '../../../lib/state/model.ts';
import { PackedStore } from '../../../lib/state/packed-store.ts';
import {
  decodeAddress,
  encodeService,
  encodeWorkload,
} from '../../../lib/xds/resources/address.ts';
import { EndpointFeeds } from '../../../services/node-proxy/state-thread/endpoint-feeds.ts';
import { TimeSlice } from '../../../lib/async/time-slice.ts';
import { HeldEndpoints } from '../../../workers/listener/held-endpoints.ts';
import type { StateResponse } from '../../../workers/listener/protocol/state.ts';
import { serviceFixture, workloadFixture } from '../../support/model-fixtures.ts';

/** Microseconds, medians. */
export interface ServiceCost {
  /** A pick for one connection. */
  readonly pick: number;
  /** The first pick after a change. */
  readonly pickAfterChange: number;
  /** The handling of a message about a changed endpoint, from the port to the set. */
  readonly change: number;
  /** The handling of one of the many messages that first describe the service to a thread. */
  readonly page: number;
}

const CHANGES = 300;
const PICKS = 20_000;
const PICKS_AT_ONCE = 100;
const source = workloadFixture({ uid: 'client', name: 'client' });

/** Measures in this process, the messages over a real port. */
export async function serviceCost(endpoints: number): Promise<ServiceCost> {
  const rig = new Rig(endpoints);
  const pages = rig.askFirst();
  const single: number[] = [];
  const pickAfterChange: number[] = [];
  const change: number[] = [];
  for (let index = 0; index < PICKS; index += PICKS_AT_ONCE) {
    single.push(timed(() => rig.pick(PICKS_AT_ONCE)) / PICKS_AT_ONCE);
  }
  for (let index = 0; index < CHANGES; index += 1) {
    await rig.change(index % endpoints, index);
    change.push(timed(() => rig.takeOne()));
    pickAfterChange.push(timed(() => rig.pick(1)));
  }
  rig.close();
  return {
    pick: median(single),
    pickAfterChange: median(pickAfterChange),
    change: median(change),
    page: median(pages),
  };
}

class Rig {
  readonly #store: PackedStore;
  readonly #feeds: EndpointFeeds;
  readonly #held = new HeldEndpoints(() => undefined);
  readonly #service: Service = serviceFixture();
  readonly #told: MessagePort;
  readonly #tells: MessagePort;
  /** The epoch of the last message. */
  #epoch = 0;

  constructor(endpoints: number) {
    const { port1, port2 } = new MessageChannel();
    this.#tells = port1;
    this.#told = port2;
    this.#store = new PackedStore(decodeAddress, {
      endpointChanged: (key, uid) => this.#feeds.changed(key, uid),
    });
    this.#feeds = new EndpointFeeds(this.#store);
    this.#store.apply(serviceKey(this.#service), encodeService(this.#service));
    for (let index = 0; index < endpoints; index += 1) this.#put(index, 1);
  }

  /** Sends the first question; returns the time of each message, microseconds. */
  askFirst(): number[] {
    const send = (message: StateResponse): void => this.#tells.postMessage(message);
    this.#feeds.offer(0, [this.#service], send, () => undefined);
    const pages: number[] = [];
    for (;;) {
      const began = performance.now();
      if (!this.takeOne()) return pages;
      pages.push((performance.now() - began) * 1_000);
      this.#feeds.taken(0, serviceKey(this.#service), this.#epoch);
    }
  }

  /** Gives the endpoint a new revision, as when its pod is replaced. */
  async change(index: number, round: number): Promise<void> {
    this.#put(index, round + 2);
    this.#feeds.taken(0, serviceKey(this.#service), this.#epoch);
    await this.#feeds.publish(new TimeSlice(STATE_SLICE_MS));
  }

  takeOne(): boolean {
    const received = receiveMessageOnPort(this.#told);
    if (received === undefined) return false;
    const { message } = received as { readonly message: StateResponse };
    if (message.type !== 'endpoints') return true;
    this.#held.take(message);
    this.#epoch = message.epoch;
    return true;
  }

  pick(times: number): void {
    const endpoints = this.#held.of(this.#service);
    if (endpoints === null) throw new Error('the endpoints are not held');
    const target = { service: this.#service, endpoints };
    for (let index = 0; index < times; index += 1) {
      if (pickEndpoint(target, source, 80, 'standard', Math.random) === null) {
        throw new Error('nothing was picked');
      }
    }
  }

  close(): void {
    this.#tells.close();
  }

  #put(index: number, revision: number): void {
    const workload = workloadFixture({
      uid: `Kubernetes//Pod/demo/web-${index}`,
      name: `web-${index}`,
      canonicalRevision: `r${revision}`,
      addresses: [`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`],
      services: { [serviceKey(this.#service)]: { 80: 8080 } },
    });
    this.#store.apply(workload.uid, encodeWorkload(workload));
  }
}

function timed(work: () => void): number {
  const began = performance.now();
  work();
  return (performance.now() - began) * 1_000;
}

function median(values: readonly number[]): number {
  return values.toSorted((left, right) => left - right)[values.length >> 1] ?? 0;
}

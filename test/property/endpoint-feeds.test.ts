/** Whatever changes, and however late a thread takes what it is told: in the end it holds what the store holds. */
import test from 'ava';
import * as fc from 'fast-check';
import { STATE_SLICE_MS } from '../../services/node-proxy/limits.ts';
import { pickEndpoint } from '../../lib/state/load-balance.ts';
import type { Endpoint, Service, Workload } from '../../lib/state/model.ts';
import { PackedStore } from '../../lib/state/packed-store.ts';
import { decodeAddress } from '../../lib/xds/resources/address.ts';
import { EndpointFeeds } from '../../services/node-proxy/state-thread/endpoint-feeds.ts';
import { TimeSlice } from '../../lib/async/time-slice.ts';
import { HeldEndpoints } from '../../workers/listener/held-endpoints.ts';
import type { StateResponse } from '../../workers/listener/protocol/state.ts';
import { encode, service, workload } from '../support/mesh-kit.ts';

const KEY = 'demo/web.demo';
const NODES = ['n1', 'n2', ''];
const source = workload({ uid: 'client', addresses: ['10.9.9.9'], node: 'n1' });

const uid = fc.integer({ min: 0, max: 150 }).map((index) => `c//Pod/demo/w${index}`);
const member: fc.Arbitrary<Workload> = fc
  .record({
    uid,
    node: fc.constantFrom(...NODES),
    capacity: fc.constantFrom(0, 1, 3),
    status: fc.constantFrom('HEALTHY' as const, 'HEALTHY' as const, 'UNHEALTHY' as const),
    services: fc.constantFrom<Workload['services']>({ [KEY]: { 80: 8080 } }, { [KEY]: {} }, {}),
  })
  .map((fields) => workload({ addresses: ['10.0.0.1'], ...fields }));
const web: fc.Arbitrary<Service> = fc
  .record({
    ports: fc.constantFrom<Service['ports']>({ 80: 8080 }, { 80: 0 }),
    loadBalancing: fc.constantFrom<Service['loadBalancing']>(
      null,
      { routingPreference: ['NODE'], mode: 'FAILOVER', healthPolicy: 'ONLY_HEALTHY' },
      { routingPreference: ['NODE'], mode: 'STRICT', healthPolicy: 'ALLOW_ALL' },
    ),
  })
  .map((fields) => service({ hostname: 'web.demo', ...fields }));

type Step =
  | { readonly kind: 'row'; readonly name: string; readonly row: Workload | Service | null }
  | { readonly kind: 'take' | 'ask' | 'publish' | 'release' };
const row = (name: string, value: Workload | Service | null): Step => ({
  kind: 'row',
  name,
  row: value,
});
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: member.map((one) => row(one.uid, one)) },
  { weight: 2, arbitrary: uid.map((name) => row(name, null)) },
  { weight: 1, arbitrary: fc.option(web, { nil: null }).map((one) => row(KEY, one)) },
  { weight: 6, arbitrary: fc.constantFrom<Step>({ kind: 'take' }, { kind: 'publish' }) },
  { weight: 2, arbitrary: fc.constantFrom<Step>({ kind: 'ask' }, { kind: 'release' }) },
);

class Rig {
  readonly store: PackedStore;
  readonly feeds: EndpointFeeds;
  readonly held = new HeldEndpoints(() => {});
  readonly queue: Extract<StateResponse, { type: 'endpoints' }>[] = [];
  answered = 0;

  constructor() {
    this.store = new PackedStore(decodeAddress, {
      endpointChanged: (key, who) => this.feeds.changed(key, who),
    });
    this.feeds = new EndpointFeeds(this.store);
  }

  ask(): void {
    const known = this.store.serviceOf(KEY);
    const services = known === undefined ? [] : [known];
    const send = (message: StateResponse): void => {
      if (message.type === 'endpoints') this.queue.push(message);
    };
    if (this.feeds.offer(0, services, send, () => this.ask())) this.answered += 1;
  }

  take(): boolean {
    const message = this.queue.shift();
    if (message === undefined) return false;
    this.held.take(message);
    this.feeds.taken(0, message.service);
    return true;
  }

  async run(one: Step): Promise<void> {
    if (one.kind === 'row') this.store.apply(one.name, one.row === null ? null : encode(one.row));
    else if (one.kind === 'take') this.take();
    else if (one.kind === 'ask') this.ask();
    else if (one.kind === 'publish') await this.feeds.publish(new TimeSlice(STATE_SLICE_MS));
    else this.feeds.release(0, KEY);
  }

  async settle(): Promise<void> {
    await this.feeds.publish(new TimeSlice(STATE_SLICE_MS));
    this.ask();
    while (this.take());
  }
}

const listed = (endpoints: Iterable<Endpoint>): string[] =>
  [...endpoints].map((endpoint) => JSON.stringify(endpoint)).toSorted();

test('a thread ends up with the endpoints that the store has, and picks among the same', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(member, { maxLength: 150 }),
      web,
      fc.array(step),
      async (first, of, steps) => {
        const rig = new Rig();
        for (const one of first) rig.store.apply(one.uid, encode(one));
        rig.store.apply(KEY, encode(of));
        rig.ask();
        for (const one of steps) await rig.run(one);
        await rig.settle();
        const known = rig.store.service(KEY);
        if (known === undefined) return;
        const endpoints = rig.held.of(known.service);
        if (endpoints === null) throw new Error('nothing is held');
        t.deepEqual(listed(endpoints), listed(known.endpoints));
        const reachable = (target: typeof known): string[] => {
          const found = new Set<string>();
          for (let at = 0; at < 1; at += 1 / 512) {
            const pick = pickEndpoint(target, source, 80, 'standard', () => at);
            if (pick !== null) found.add(`${pick.workload.uid} ${pick.port} ${pick.alternatives}`);
          }
          return [...found].toSorted();
        };
        t.deepEqual(reachable({ ...known, endpoints }), reachable(known));
      },
    ),
    { numRuns: 150 },
  );
});

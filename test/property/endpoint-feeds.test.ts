/** After any changes, losses of sight and crossing messages, a thread holds in the end the endpoints that the store holds. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import test from 'ava';
import * as fc from 'fast-check';
import { STATE_SLICE_MS } from '../../services/node-proxy/limits.ts';
import { pickEndpoint } from '../../lib/state/load-balance.ts';
import { serviceKey } from '../../lib/state/model.ts';
import type { Endpoint, Service, Workload } from '../../lib/state/model.ts';
import { PackedStore } from '../../lib/state/packed-store.ts';
import { decodeAddress } from '../../lib/xds/resources/address.ts';
import { EndpointFeeds } from '../../services/node-proxy/state-thread/endpoint-feeds.ts';
import { TimeSlice } from '../../lib/async/time-slice.ts';
import { HeldEndpoints } from '../../workers/listener/held-endpoints.ts';
import { KEPT_SERVICES } from '../../workers/listener/limits.ts';
import type { StateRequest, StateResponse } from '../../workers/listener/protocol/state.ts';
import { encode, service, workload } from '../support/mesh-kit.ts';

const KEY = 'demo/web.demo';
/** Few, so that most services take several messages. */
const PER_MESSAGE = 20;
const NODES = ['n1', 'n2', ''];
const source = workload({ uid: 'client', addresses: ['10.9.9.9'], node: 'n1' });

const uid = fc.integer({ min: 0, max: 60 }).map((index) => `c//Pod/demo/w${index}`);
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
  | { readonly kind: 'cross'; readonly row: Service }
  | { readonly kind: 'detour'; readonly row: Service; readonly meanwhile: Workload }
  | { readonly kind: 'take' | 'hear' | 'ask' | 'publish' | 'release' };
const row = (name: string, value: Workload | Service | null): Step => ({
  kind: 'row',
  name,
  row: value,
});
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: member.map((one) => row(one.uid, one)) },
  { weight: 2, arbitrary: uid.map((name) => row(name, null)) },
  { weight: 1, arbitrary: fc.option(web, { nil: null }).map((one) => row(KEY, one)) },
  { weight: 1, arbitrary: web.map((one): Step => ({ kind: 'cross', row: one })) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(web, member)
      .map(([one, meanwhile]): Step => ({ kind: 'detour', row: one, meanwhile })),
  },
  { weight: 6, arbitrary: fc.constantFrom<Step>({ kind: 'take' }, { kind: 'publish' }) },
  { weight: 4, arbitrary: fc.constant<Step>({ kind: 'hear' }) },
  { weight: 4, arbitrary: fc.constantFrom<Step>({ kind: 'ask' }, { kind: 'release' }) },
);

const asked = service({ hostname: 'web.demo' });
/** As many as a thread keeps in any case, so that it gives up the one named longest ago beside them. */
const others = Array.from({ length: KEPT_SERVICES }, (_, index) =>
  service({ hostname: `other${index}.demo` }),
);

/** The endpoints of one service between the state thread and one listener thread, whose messages both wait to be taken. */
class Rig {
  readonly store: PackedStore;
  readonly feeds: EndpointFeeds;
  readonly held: HeldEndpoints;
  readonly toThread: StateResponse[] = [];
  readonly toState: StateRequest[] = [];
  /** The service changed since the thread asked about it last. */
  stale = true;

  constructor() {
    this.store = new PackedStore(decodeAddress, {
      endpointChanged: (key, who) => this.feeds.changed(key, who),
    });
    this.feeds = new EndpointFeeds(this.store, PER_MESSAGE);
    this.held = new HeldEndpoints((message) => {
      if (!('service' in message) || message.service === KEY) this.toState.push(message);
    }, 0);
    for (const one of others) {
      const anew = { balancing: null };
      const key = serviceKey(one);
      this.held.take({ type: 'endpoints', service: key, epoch: 0, anew, endpoints: [] });
    }
  }

  put(name: string, value: Workload | Service | null): void {
    this.store.apply(name, value === null ? null : encode(value));
    if (name === KEY) this.stale = true;
  }

  async run(one: Step): Promise<void> {
    if (one.kind === 'row') this.put(one.name, one.row);
    else if (one.kind === 'cross') await this.#cross(one.row);
    else if (one.kind === 'detour') await this.#detour(one.row, one.meanwhile);
    else if (one.kind === 'take') this.#take();
    else if (one.kind === 'hear') await this.#hear();
    else if (one.kind === 'ask') this.#ask();
    else if (one.kind === 'publish') await this.feeds.publish(new TimeSlice(STATE_SLICE_MS));
    else this.#giveUp();
  }

  /** The thread gives up endpoints while it is told of them anew, which chance alone rarely brings about. */
  async #cross(of: Service): Promise<void> {
    await this.#drain();
    this.put(KEY, of);
    this.#ask();
    await this.#hear();
    this.#giveUp();
  }

  /** The service is another one for a while, in which an endpoint changes and the thread does not ask. */
  async #detour(of: Service, meanwhile: Workload): Promise<void> {
    await this.#drain();
    const before = this.store.serviceOf(KEY) ?? null;
    this.put(KEY, of);
    this.put(meanwhile.uid, meanwhile);
    await this.feeds.publish(new TimeSlice(STATE_SLICE_MS));
    this.put(KEY, before);
  }

  /** Lets everything arrive; the thread asks only where it has a reason to. */
  async settle(): Promise<void> {
    await this.feeds.publish(new TimeSlice(STATE_SLICE_MS));
    await this.#drain();
    if (!this.stale && this.held.of(asked) !== null) return;
    this.#ask();
    await this.#drain();
  }

  async #drain(): Promise<void> {
    while (this.#take() || (await this.#hear()));
  }

  #ask(): void {
    this.stale = false;
    this.toState.push({ type: 'lookup', id: 1, keys: [] });
  }

  #giveUp(): void {
    for (const one of others) this.held.of(one);
    this.held.shrink();
  }

  /** The listener thread takes in one message. */
  #take(): boolean {
    const message = this.toThread.shift();
    if (message?.type === 'endpoints') this.held.take(message);
    const named = message?.type === 'answer' ? (message.answers[0]?.services ?? []) : [];
    if (named.some((one) => this.held.of(one) === null)) this.#ask();
    return message !== undefined;
  }

  /** The state thread carries out one request, also where it was sent at the end of the listener's turn. */
  async #hear(): Promise<boolean> {
    await nextTurn();
    const request = this.toState.shift();
    if (request?.type === 'lookup') this.#answer();
    else if (request?.type === 'endpoints.taken') this.feeds.taken(0, KEY, request.epoch);
    else if (request?.type === 'endpoints.release') this.feeds.release(0, KEY, request.epoch);
    return request !== undefined || this.toThread.length > 0;
  }

  #answer(): void {
    const known = this.store.serviceOf(KEY);
    const services = known === undefined ? [] : [known];
    const send = (message: StateResponse): void => void this.toThread.push(message);
    if (!this.feeds.offer(0, services, send, () => this.#answer())) return;
    send({ type: 'answer', id: 1, answers: [{ workloads: [], services }] });
  }
}

const listed = (endpoints: Iterable<Endpoint>): string[] =>
  [...endpoints].map((endpoint) => JSON.stringify(endpoint)).toSorted();

test('a thread ends up with the endpoints that the store has, and picks among the same', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(member, { maxLength: 60 }),
      web,
      fc.array(step),
      async (first, of, steps) => {
        const rig = new Rig();
        for (const one of first) rig.put(one.uid, one);
        rig.put(KEY, of);
        await rig.run({ kind: 'ask' });
        await rig.run({ kind: 'hear' });
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
    { numRuns: 3000 },
  );
});

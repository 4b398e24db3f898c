/** After any changes, disconnects, refusals and subscriptions, a client of the delta server holds what a new one would get. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import * as fc from 'fast-check';
import type { Steps } from '../../lib/async/shared-slices.ts';
import { BitSet } from '../../lib/collections/bit-set.ts';
import { AffectedKeys } from '../../lib/xds/key-index.ts';
import { ResourceTable } from '../../lib/xds/resource-table.ts';
import { SharedAnswers } from '../../lib/xds/shared-answers.ts';
import { ADDRESS_TYPE } from '../../lib/xds/type-urls.ts';
import { TypeSubscription } from '../../lib/xds/type-subscription.ts';
import { decodeResponse } from '../../lib/xds/wire.ts';
import type { ServedResource, ServerRequest } from '../../lib/xds/wire.ts';

const NODE = 'n1';
const SERVICES = ['demo/s0', 'demo/s1', 'demo/s2'];
const WORKLOADS = Array.from({ length: 8 }, (_, index) => `w${index}`);
const POD_IPS = ['/10.0.0.0', '/10.0.0.1', '/10.0.0.2', '/10.0.0.9'];
const SERVICE_IPS = ['/10.1.0.0', '/10.1.0.1', '/10.0.0.0/30'];
const KEYS = [...SERVICES, ...WORKLOADS, ...POD_IPS, '/10.1.0.0', '/10.1.0.1', 'nobody'];

type Content = Omit<ServedResource, 'version' | 'bytes'>;

const workload: fc.Arbitrary<Content> = fc.record({
  name: fc.constantFrom(...WORKLOADS),
  aliases: fc.subarray(POD_IPS, { maxLength: 2 }),
  node: fc.constantFrom(NODE, 'n2'),
  services: fc.subarray(SERVICES),
  isService: fc.constant(false),
});
const service: fc.Arbitrary<Content> = fc.record({
  name: fc.constantFrom(...SERVICES),
  aliases: fc.subarray(SERVICE_IPS, { maxLength: 2 }),
  node: fc.constant(''),
  services: fc.constant([]),
  isService: fc.constant(true),
});

const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.oneof(workload, service).map((content) => ({ do: 'set', content }) as const),
  },
  {
    weight: 2,
    arbitrary: fc
      .constantFrom(...WORKLOADS, ...SERVICES)
      .map((name) => ({ do: 'remove', name }) as const),
  },
  { weight: 4, arbitrary: fc.constant({ do: 'push' } as const) },
  { weight: 3, arbitrary: fc.constant({ do: 'receive' } as const) },
  { weight: 3, arbitrary: fc.constant({ do: 'ack' } as const) },
  { weight: 1, arbitrary: fc.constant({ do: 'nack' } as const) },
  { weight: 1, arbitrary: fc.constant({ do: 'reconnect' } as const) },
  { weight: 1, arbitrary: fc.constant({ do: 'reclaim' } as const) },
  {
    weight: 2,
    arbitrary: fc.constantFrom(...KEYS).map((key) => ({ do: 'subscribe', key }) as const),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(...KEYS).map((key) => ({ do: 'unsubscribe', key }) as const),
  },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

function finish<T>(steps: Steps<T>): T {
  for (;;) {
    const result = steps.next();
    if (result.done === true) return result.value;
  }
}

function request(fields: Partial<ServerRequest>): ServerRequest {
  return {
    node: null,
    typeUrl: ADDRESS_TYPE,
    subscribe: [],
    unsubscribe: [],
    initialVersions: [],
    nonce: '',
    error: null,
    ...fields,
  };
}

/** The server's side of one type, with two clients: the one that is tested, and one that shares its answers. */
class World {
  readonly table = new ResourceTable();
  readonly answers = new SharedAnswers(ADDRESS_TYPE, {
    table: this.table,
    nonce: () => `n${(this.#nonces += 1)}`,
    version: () => 'v',
    encoded: () => undefined,
    nowMs: () => 0,
    maxBytes: 600,
  });
  readonly wanted = new Map<string, ServedResource>();
  readonly clients: ModelClient[] = [];
  #changed = new Set<string>();
  #nonces = 0;
  #versions = 0;

  set(content: Content): void {
    const version = String((this.#versions += 1));
    this.wanted.set(content.name, {
      ...content,
      version,
      bytes: Buffer.from(`${content.name}=${version}`),
    });
    this.#changed.add(content.name);
  }

  remove(name: string): void {
    this.wanted.delete(name);
    this.#changed.add(name);
  }

  push(): void {
    const slots = new BitSet();
    const affected = new AffectedKeys();
    for (const name of this.#changed) {
      const slot = this.table.apply(name, this.wanted.get(name) ?? null, affected);
      if (slot !== null) slots.add(slot);
    }
    this.#changed = new Set();
    this.answers.drop(slots);
    for (const { subscription } of this.clients) subscription.note(slots, affected);
  }

  reclaim(): void {
    finish(this.table.reclaim(this.clients.flatMap(({ subscription }) => [...subscription.slots])));
  }
}

/** A client that holds what it was sent, as ztunnel does. */
class ModelClient {
  readonly #world: World;
  readonly onDemand: boolean;
  readonly keys = new Set<string>();
  held = new Map<string, string>();
  subscription: TypeSubscription;
  #unanswered: string | null = null;
  #arrived: string[] = [];

  constructor(world: World, onDemand: boolean) {
    this.#world = world;
    this.onDemand = onDemand;
    this.subscription = this.#open();
  }

  reconnect(): void {
    this.subscription = this.#open();
  }

  receive(): void {
    const answer = this.subscription.next(0);
    if (answer === null) return;
    const { resources, removed, nonce, more } = decodeResponse(answer.bytes);
    if (more === answer.isLast) throw new Error('a response says wrongly whether more follows');
    this.#unanswered = nonce;
    this.#arrived = resources.map(({ name }) => name);
    for (const { name, version } of resources) this.held.set(name, version);
    for (const name of removed) this.held.delete(name);
  }

  ack(): void {
    if (this.#unanswered === null) return;
    this.#take({ nonce: this.#unanswered });
    this.#unanswered = null;
  }

  /** Refuses the first resource of the last response. Such a resource is listed without a version when it resumes. */
  nack(): void {
    const [refused] = this.#arrived;
    if (this.#unanswered === null || refused === undefined) return;
    this.held.set(refused, '');
    this.#take({ nonce: this.#unanswered, error: `${refused}: no` });
    this.#unanswered = null;
  }

  subscribe(key: string): void {
    if (!this.onDemand) return;
    this.keys.add(key);
    this.#take({ subscribe: [key] });
  }

  /** Forgets the key, and everything that no other key of its stands for. */
  unsubscribe(key: string): void {
    if (!this.onDemand) return;
    this.keys.delete(key);
    this.#take({ unsubscribe: [key] });
    const kept = new Set([...this.keys].flatMap((each) => [...this.#world.table.resolve(each)]));
    for (const slot of this.#world.table.ofNode(NODE)) kept.add(slot);
    for (const name of this.held.keys()) {
      const slot = this.#world.table.slotOf(name);
      if (slot === -1 || !kept.has(slot)) this.held.delete(name);
    }
  }

  /** Takes everything that is owed. */
  settle(): void {
    for (let round = 0; round < 1_000; round += 1) {
      this.ack();
      if (!this.subscription.sendable) return;
      this.receive();
    }
    throw new Error('the server is never done');
  }

  #open(): TypeSubscription {
    this.#unanswered = null;
    const { table, answers } = this.#world;
    const subscription = new TypeSubscription({ table, answers }, this.onDemand ? NODE : '');
    const initialVersions = [...this.held];
    this.subscription = subscription;
    if (this.onDemand) {
      const subscribe = ['*', ...this.keys];
      this.#take({ subscribe, unsubscribe: ['*'], initialVersions });
    } else this.#take({ initialVersions });
    return subscription;
  }

  #take(fields: Partial<ServerRequest>): void {
    finish(this.subscription.take(request(fields)));
  }
}

function play(world: World, client: ModelClient, taken: Step): void {
  switch (taken.do) {
    case 'set':
      return world.set(taken.content);
    case 'remove':
      return world.remove(taken.name);
    case 'push':
      return world.push();
    case 'reclaim':
      return world.reclaim();
    case 'subscribe':
    case 'unsubscribe':
      return client[taken.do](taken.key);
    default:
      return client[taken.do]();
  }
}

function check(t: ExecutionContext, onDemand: boolean): void {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const world = new World();
      const client = new ModelClient(world, onDemand);
      const twin = new ModelClient(world, onDemand);
      world.clients.push(client, twin);
      for (const taken of steps) {
        play(world, client, taken);
        if (taken.do === 'push') twin.settle();
      }
      world.push();
      // Nothing is sent again after a refusal, until the client resumes.
      if (steps.some((taken) => taken.do === 'nack')) client.reconnect();
      client.settle();
      compare(world, client);
      client.reconnect();
      client.settle();
      compare(world, client);
    }),
    { numRuns: 400 },
  );
  t.pass();
}

/** Throws unless the client holds what a new one with the same keys gets, and nothing that is old. */
function compare(world: World, client: ModelClient): void {
  const fresh = new ModelClient(world, client.onDemand);
  for (const key of client.keys) fresh.subscribe(key);
  fresh.settle();
  for (const [name, version] of fresh.held) {
    if (client.held.get(name) !== version) throw new Error(`${name} is not as a new client has it`);
  }
  for (const [name, version] of client.held) {
    if (world.wanted.get(name)?.version !== version) throw new Error(`${name} is stale`);
  }
}

test('of everything', (t) => check(t, false));
test('on demand', (t) => check(t, true));

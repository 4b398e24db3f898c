import type { MessagePort } from 'node:worker_threads';
import { inTime } from '../../lib/async/time-limit.ts';
import { evictOldest } from '../../lib/collections/evict.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { PolicyProgram } from '../../lib/policy/model.ts';
import type { EndpointSet, ServiceWithEndpoints } from '../../lib/state/endpoint-set.ts';
import { lookupId } from '../../lib/state/view.ts';
import type { Answer, AnswerHead, LookupKey, MeshView } from '../../lib/state/view.ts';
import {
  LOCAL_WORKLOAD_WAIT_MS,
  LOOKUP_RETRY_MS,
  LOOKUP_WAIT_MS,
  MAX_CACHED_ANSWERS,
  MAX_ON_DEMAND_WAITERS_PER_POD,
  MAX_PENDING_LOOKUPS,
} from './limits.ts';
import { HeldEndpoints } from './held-endpoints.ts';
import type { PodInfo } from './protocol/control.ts';
import type { LocalPod, StateRequest, StateResponse } from './protocol/state.ts';

/** With fewer answers nothing is evicted soon, so that it does not matter yet which one was used last. */
const KEEPS_ORDER_FROM = MAX_CACHED_ANSWERS / 2;

/** A local pod whose workload is known. */
export type KnownPod = LocalPod & { readonly workload: NonNullable<LocalPod['workload']> };

interface Pending {
  readonly keys: readonly LookupKey[];
  readonly settle: () => void;
}

interface Watch {
  local: LocalPod | null;
  readonly listeners: Set<() => void>;
}

/** Settings of a {@link StateClient}. */
export interface StateClientOptions {
  /** Replaces the bound of endpoints and services held. */
  readonly maxEndpoints?: number;
  /** How long a connection waits where the mesh is followed on demand; null = it is followed whole. */
  readonly onDemandWaitMs?: number | null;
}

/**
 * A thread's window on the mesh state: a bounded cache of answers, the thread's own pods, and the programs of their
 * policy sets. Only a miss costs a message to the state thread.
 */
export class StateClient implements MeshView {
  readonly #port: MessagePort;
  readonly #clock: Clock;
  readonly #answers = new Map<string, Answer>();
  /** Answers about host names, kept apart: queries for names that do not exist must not evict answers that routes need. */
  readonly #names = new Map<string, Answer>();
  readonly #endpoints: HeldEndpoints;
  readonly #pending = new Map<number, Pending>();
  /** Keys asked for and not yet answered, with what to await. */
  readonly #asked = new Map<string, Promise<void>>();
  readonly #watches = new Map<string, Watch>();
  readonly #programs = new Map<string, PolicyProgram>();
  readonly #invalidated: ((ids: readonly string[] | null) => void)[] = [];
  readonly #onDemandWaitMs: number | null;
  /** Connections that wait for lookups on demand, by pod. */
  readonly #waiters = new Map<string, number>();
  #nextId = 1;

  constructor(port: MessagePort, clock: Clock, options: StateClientOptions = {}) {
    this.#port = port;
    this.#clock = clock;
    this.#onDemandWaitMs = options.onDemandWaitMs ?? null;
    this.#endpoints = new HeldEndpoints((message) => this.#send(message), options.maxEndpoints);
    port.on('message', (message: StateResponse) => this.#receive(message));
  }

  /** Answers held now. */
  get cached(): number {
    return this.#answers.size + this.#names.size;
  }

  /** Endpoints held now, and services they are of. */
  get heldEndpoints(): number {
    return this.#endpoints.count;
  }

  get(key: LookupKey): Answer | undefined {
    const id = lookupId(key);
    const answers = key.kind === 'hostname' ? this.#names : this.#answers;
    const answer = answers.get(id);
    if (answer === undefined) return undefined;
    this.#endpoints.used(answer.services);
    if (answers.size < KEEPS_ORDER_FROM) return answer;
    // Moves it to the young end of the map: eviction takes from the old one.
    answers.delete(id);
    answers.set(id, answer);
    return answer;
  }

  /**
   * Resolves once {@link get} knows all keys, for a connection of the pod. STATE_UNAVAILABLE when that takes too long, or when too
   * many connections of the pod wait for what is not known yet.
   */
  async fetch(keys: readonly LookupKey[], pod = ''): Promise<void> {
    if (this.#onDemandWaitMs === null) {
      await this.#fetch(keys, pod, LOOKUP_WAIT_MS);
      return;
    }
    const waiting = this.#waiters.get(pod) ?? 0;
    if (waiting >= MAX_ON_DEMAND_WAITERS_PER_POD) throw unavailable(keys);
    this.#waiters.set(pod, waiting + 1);
    try {
      await this.#fetch(keys, pod, this.#onDemandWaitMs);
    } finally {
      const left = (this.#waiters.get(pod) ?? 1) - 1;
      if (left === 0) this.#waiters.delete(pod);
      else this.#waiters.set(pod, left);
    }
  }

  async #fetch(keys: readonly LookupKey[], pod: string, waitMs: number): Promise<void> {
    const deadlineMs = this.#clock.monotonic() + waitMs;
    let missing = keys.filter((key) => !this.#has(key));
    for (let round = 0; missing.length > 0; round += 1) {
      if (round > 0) await this.#clock.sleep(LOOKUP_RETRY_MS);
      const leftMs = deadlineMs - this.#clock.monotonic();
      if (leftMs <= 0 || this.#pending.size >= MAX_PENDING_LOOKUPS) throw unavailable(missing);
      await inTime(this.#clock, leftMs, Promise.all(this.#ask(missing, { pod, wait: true })));
      missing = missing.filter((key) => !this.#has(key));
    }
  }

  /**
   * The answer if there is one now: one question, no second try; undefined otherwise. With a pod, an answer that is not known on
   * demand is asked for, for the next time.
   */
  async ask(key: LookupKey, pod?: string): Promise<Answer | undefined> {
    if (this.#pending.size >= MAX_PENDING_LOOKUPS) return undefined;
    const demand = pod === undefined ? {} : { pod };
    await inTime(this.#clock, LOOKUP_WAIT_MS, Promise.all(this.#ask([key], demand)));
    return this.#cacheOf(lookupId(key)).get(lookupId(key));
  }

  /** Starts following a pod of this thread; the result ends that, unless the pod has been followed anew since. */
  watch(pod: PodInfo): () => void {
    const { uid } = pod;
    const watch: Watch = { local: null, listeners: new Set() };
    this.#watches.set(uid, watch);
    this.#send({ type: 'watch', pod });
    return () => {
      // A successor under the same uid has a watch of its own, here and in the state thread.
      if (this.#watches.get(uid) !== watch) return;
      this.#watches.delete(uid);
      this.#send({ type: 'unwatch', uid });
    };
  }

  /** Returns the state of a watched pod; null before the first message about it. */
  local(uid: string): LocalPod | null {
    return this.#watches.get(uid)?.local ?? null;
  }

  /** Calls `listener` whenever the pod's workload, services or policies change; the result ends that. */
  onLocal(uid: string, listener: () => void): () => void {
    const listeners = this.#watches.get(uid)?.listeners;
    listeners?.add(listener);
    return () => listeners?.delete(listener);
  }

  /** Calls `listener` for every change of the mesh, after stale answers are gone; null = everything may have changed. */
  onInvalidate(listener: (ids: readonly string[] | null) => void): void {
    this.#invalidated.push(listener);
  }

  /** The pod with its workload, waiting for the mesh to tell of it. ROUTE_UNKNOWN_WORKLOAD after 5 s. */
  knownLocal(uid: string): KnownPod | Promise<KnownPod> {
    const now = this.local(uid);
    return now !== null && isKnown(now) ? now : this.#knownSoon(uid);
  }

  async #knownSoon(uid: string): Promise<KnownPod> {
    const known = await this.waitLocal(uid, isKnown, LOCAL_WORKLOAD_WAIT_MS);
    if (known !== null && isKnown(known)) return known;
    throw unknownWorkload(LOCAL_WORKLOAD_WAIT_MS);
  }

  /** Waits until the pod satisfies `wanted`; null after `timeoutMs` or when it is no longer watched. */
  waitLocal(
    uid: string,
    wanted: (local: LocalPod) => boolean,
    timeoutMs: number,
  ): LocalPod | null | Promise<LocalPod | null> {
    const now = this.local(uid);
    if (now !== null && wanted(now)) return now;
    return new Promise((resolve) => {
      const finish = (result: LocalPod | null): void => {
        stop();
        timer.cancel();
        resolve(result);
      };
      const stop = this.onLocal(uid, () => {
        const local = this.local(uid);
        if (local !== null && wanted(local)) finish(local);
      });
      const timer = this.#clock.after(timeoutMs, () => finish(null));
    });
  }

  /** The program of a policy set; undefined when the state thread broke its word to send it first. */
  program(setId: string): PolicyProgram | undefined {
    return this.#programs.get(setId);
  }

  #ask(
    keys: readonly LookupKey[],
    demand: { readonly pod?: string; readonly wait?: boolean },
  ): Promise<void>[] {
    const fresh = keys.filter((key) => !this.#asked.has(lookupId(key)));
    if (fresh.length > 0) {
      const id = this.#nextId;
      this.#nextId += 1;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#pending.set(id, { keys: fresh, settle: resolve });
      for (const key of fresh) this.#asked.set(lookupId(key), promise);
      const onDemand = this.#onDemandWaitMs === null ? {} : demand;
      this.#send({ type: 'lookup', id, keys: fresh, ...onDemand });
    }
    return keys.flatMap((key) => this.#asked.get(lookupId(key)) ?? []);
  }

  #send(message: StateRequest): void {
    this.#port.postMessage(message);
  }

  #receive(message: StateResponse): void {
    switch (message.type) {
      case 'program':
        this.#programs.set(message.program.setId, message.program);
        break;
      case 'program.drop':
        this.#programs.delete(message.setId);
        break;
      case 'local': {
        const watch = this.#watches.get(message.uid);
        if (watch === undefined) break;
        watch.local = message.pod;
        for (const listener of watch.listeners) listener();
        break;
      }
      case 'answer':
        this.#onAnswer(message.id, message.answers);
        break;
      case 'endpoints':
        this.#endpoints.take(message);
        break;
      case 'invalidate':
        this.#forget(message.ids);
        for (const listener of this.#invalidated) listener(message.ids);
        break;
    }
  }

  #onAnswer(id: number, answers: readonly (AnswerHead | null)[]): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#pending.delete(id);
    for (const [index, key] of pending.keys.entries()) {
      const text = lookupId(key);
      this.#asked.delete(text);
      const answer = this.#whole(answers[index] ?? null);
      // Null is "cannot tell yet": nothing to keep, whoever waits asks again.
      if (answer !== null) this.#cacheOf(text).set(text, answer);
    }
    this.#forgetServices(this.#endpoints.shrink());
    evictOldest(this.#answers, MAX_CACHED_ANSWERS);
    evictOldest(this.#names, MAX_CACHED_ANSWERS);
    pending.settle();
  }

  /** The answer with the endpoints that came before it; null when they were given up since. */
  #whole(head: AnswerHead | null): Answer | null {
    if (head === null) return null;
    const services: ServiceWithEndpoints[] = [];
    for (const service of head.services) {
      const endpoints = this.#endpoints.of(service);
      if (endpoints === null) return null;
      services.push({ service, endpoints });
    }
    return { workloads: head.workloads, services };
  }

  /** Answers may not outlive the endpoints they name, which nobody keeps up to date any more. */
  #forgetServices(gone: ReadonlySet<EndpointSet>): void {
    if (gone.size === 0) return;
    for (const answers of [this.#answers, this.#names]) {
      for (const [id, { services }] of answers) {
        if (services.some(({ endpoints }) => gone.has(endpoints))) answers.delete(id);
      }
    }
  }

  #has(key: LookupKey): boolean {
    const id = lookupId(key);
    return this.#cacheOf(id).has(id);
  }

  #cacheOf(id: string): Map<string, Answer> {
    return id.startsWith('hostname:') ? this.#names : this.#answers;
  }

  /** Null: everything. */
  #forget(ids: readonly string[] | null): void {
    for (const id of ids ?? []) this.#cacheOf(id).delete(id);
    if (ids !== null) return;
    this.#answers.clear();
    this.#names.clear();
  }
}

/** Whether the mesh knows the pod's workload, and so what binds it. */
export function isKnown(local: LocalPod): local is KnownPod {
  return local.workload !== null;
}

/** The refusal of what needs the pod's workload, after a wait for it. */
export function unknownWorkload(waitedMs: number): MeshError {
  const why = `the mesh does not know the workload of this pod (waited ${waitedMs} ms)`;
  return new MeshError('ROUTE_UNKNOWN_WORKLOAD', why);
}

function unavailable(keys: readonly LookupKey[]): MeshError {
  const names = keys.slice(0, 4).map(lookupId).join(', ');
  return new MeshError('STATE_UNAVAILABLE', `the mesh state cannot tell yet about ${names}`);
}

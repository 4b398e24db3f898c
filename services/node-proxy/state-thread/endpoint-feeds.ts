import type { Endpoint, Service } from '../../../lib/state/model.ts';
import { serviceKey } from '../../../lib/state/model.ts';
import { ENDPOINTS_PER_MESSAGE } from '../limits.ts';
import type { TimeSlice } from '../../../lib/async/time-slice.ts';
import type { SendToThread } from './watches.ts';

/** What is asked about endpoints; a PackedStore can tell. */
export interface EndpointView {
  serviceOf(key: string): Service | undefined;
  members(service: string): readonly string[];
  endpoint(service: string, uid: string): Endpoint | null;
}

/** What one thread has of the endpoints of one service. */
interface Feed {
  readonly thread: number;
  readonly key: string;
  readonly send: SendToThread;
  /** By it the thread groups them, and health counts. */
  balancing: Service['loadBalancing'];
  /** Uids whose endpoint the thread does not know as it is now. */
  readonly due: Set<string>;
  /** The thread forgets what it had with the next message. */
  anew: boolean;
  /** It was told of all at least once. */
  complete: boolean;
  /** A message is not taken yet: the thread is told at its own pace. */
  inFlight: boolean;
  readonly waiting: (() => void)[];
}

/**
 * Tells listener threads of the endpoints of those services that they asked for: of all of them once, in messages that
 * keep no thread for long, and then of each that changes. Nothing is sent twice, and a change costs each thread that has
 * the service one endpoint, however many others there are.
 */
export class EndpointFeeds {
  readonly #view: EndpointView;
  readonly #threads = new Map<number, Map<string, Feed>>();
  readonly #services = new Map<string, Set<Feed>>();
  readonly #changed = new Set<Feed>();

  constructor(view: EndpointView) {
    this.#view = view;
  }

  /** The thread is new or gone: what it had does not count any more. */
  forget(thread: number): void {
    for (const feed of this.#threads.get(thread)?.values() ?? []) {
      feed.waiting.length = 0;
      this.release(thread, feed.key);
    }
    this.#threads.delete(thread);
  }

  /**
   * Begins to tell the thread of the endpoints of the services. True when it has been told of them all; else `then` is called
   * once more of them are, to ask again.
   */
  offer(
    thread: number,
    services: readonly Service[],
    send: SendToThread,
    then: () => void,
  ): boolean {
    const feeds = services.map((service) => this.#feed(thread, service, send));
    for (const feed of feeds) if (!feed.complete) this.#tell(feed);
    const lacking = feeds.find((feed) => !feed.complete);
    lacking?.waiting.push(then);
    return lacking === undefined;
  }

  /** The thread took the last message about the service, and is ready for another one. */
  taken(thread: number, key: string): void {
    const feed = this.#threads.get(thread)?.get(key);
    if (feed === undefined) return;
    feed.inFlight = false;
    this.#tell(feed);
  }

  /** The thread dropped what it had of the service. */
  release(thread: number, key: string): void {
    const feeds = this.#threads.get(thread);
    const feed = feeds?.get(key);
    if (feeds === undefined || feed === undefined) return;
    feeds.delete(key);
    this.#changed.delete(feed);
    const others = this.#services.get(key);
    others?.delete(feed);
    if (others?.size === 0) this.#services.delete(key);
    // Whoever waits asks again, and begins anew.
    for (const then of feed.waiting.splice(0)) then();
  }

  /** An endpoint may have changed; threads are told by {@link publish}. */
  changed(key: string, uid: string): void {
    for (const feed of this.#services.get(key) ?? []) {
      feed.due.add(uid);
      this.#changed.add(feed);
    }
  }

  /** Tells of what changed, in slices. */
  async publish(slice: TimeSlice): Promise<void> {
    for (const feed of this.#changed) {
      this.#changed.delete(feed);
      this.#tell(feed);
      await slice.breathe();
    }
  }

  #feed(thread: number, service: Service, send: SendToThread): Feed {
    const key = serviceKey(service);
    const feeds = this.#threads.get(thread) ?? new Map<string, Feed>();
    this.#threads.set(thread, feeds);
    const known = feeds.get(key);
    const { loadBalancing: balancing } = service;
    if (known !== undefined) {
      if (JSON.stringify(known.balancing) !== JSON.stringify(balancing)) {
        known.balancing = balancing;
        this.#begin(known);
      }
      return known;
    }
    const feed: Feed = {
      thread,
      key,
      send,
      balancing,
      due: new Set(),
      anew: true,
      complete: false,
      inFlight: false,
      waiting: [],
    };
    feeds.set(key, feed);
    this.#services.set(key, (this.#services.get(key) ?? new Set()).add(feed));
    this.#begin(feed);
    return feed;
  }

  #begin(feed: Feed): void {
    feed.anew = true;
    feed.complete = false;
    feed.due.clear();
    for (const uid of this.#view.members(feed.key)) feed.due.add(uid);
  }

  #tell(feed: Feed): void {
    if (feed.inFlight || (feed.due.size === 0 && !feed.anew)) return;
    // Nobody can tell what serves it. When it comes back the thread is told of all anew.
    if (this.#view.serviceOf(feed.key) === undefined) {
      this.release(feed.thread, feed.key);
      return;
    }
    const endpoints: [string, Endpoint | null][] = [];
    for (const uid of feed.due) {
      if (endpoints.length >= ENDPOINTS_PER_MESSAGE) break;
      feed.due.delete(uid);
      endpoints.push([uid, this.#view.endpoint(feed.key, uid)]);
    }
    const { key, anew, balancing } = feed;
    feed.anew = false;
    feed.inFlight = true;
    feed.send({ type: 'endpoints', service: key, anew: anew ? { balancing } : null, endpoints });
    if (feed.due.size > 0) return;
    feed.complete = true;
    for (const then of feed.waiting.splice(0)) then();
  }
}

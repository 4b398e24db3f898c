import type { Endpoint, Service } from '../../../lib/state/model.ts';
import { serviceKey } from '../../../lib/state/model.ts';
import { ENDPOINTS_PER_MESSAGE } from '../limits.ts';
import type { TimeSlice } from '../../../lib/async/time-slice.ts';
import type { SendToThread } from './watches.ts';

/** Reads endpoints; a PackedStore does. */
export interface EndpointView {
  serviceOf(key: string): Service | undefined;
  members(service: string): readonly string[];
  endpoint(service: string, uid: string): Endpoint | null;
}

/** The endpoints of one service that one thread has. */
interface Feed {
  readonly thread: number;
  readonly key: string;
  readonly send: SendToThread;
  /** The thread groups the endpoints by it, and it says whether health counts. */
  balancing: Service['loadBalancing'];
  /** Uids of endpoints that the thread does not have as they are now. */
  readonly due: Set<string>;
  /** The next message makes the thread forget the endpoints it has. */
  anew: boolean;
  /** The thread has got all endpoints at least once. */
  complete: boolean;
  /** The thread has not taken the last message, so the next one waits. */
  inFlight: boolean;
  readonly waiting: (() => void)[];
}

/**
 * Sends listener threads the endpoints of the services that they asked for: first all of them, in messages that keep no thread
 * for long, and then each one that changes. Nothing is sent twice. A change costs each thread that has the service one
 * endpoint, however many others there are.
 */
export class EndpointFeeds {
  readonly #view: EndpointView;
  readonly #threads = new Map<number, Map<string, Feed>>();
  readonly #services = new Map<string, Set<Feed>>();
  readonly #changed = new Set<Feed>();

  constructor(view: EndpointView) {
    this.#view = view;
  }

  /** Forgets the endpoints that the thread had, because the thread is new or gone. */
  forget(thread: number): void {
    for (const feed of this.#threads.get(thread)?.values() ?? []) {
      feed.waiting.length = 0;
      this.release(thread, feed.key);
    }
    this.#threads.delete(thread);
  }

  /**
   * Begins to send the thread the endpoints of the services. Returns true when the thread has them all; else calls `then` when
   * it has more of them, to ask again.
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
    // The waiting lookups ask again and begin anew.
    for (const then of feed.waiting.splice(0)) then();
  }

  /** Marks an endpoint that may have changed; {@link publish} sends it. */
  changed(key: string, uid: string): void {
    for (const feed of this.#services.get(key) ?? []) {
      feed.due.add(uid);
      this.#changed.add(feed);
    }
  }

  /** Sends the changed endpoints, in slices. */
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
    // The service is gone. When it comes back, the thread gets all endpoints anew.
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

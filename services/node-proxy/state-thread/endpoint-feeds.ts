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
  /** Differs from all others since the last time that all endpoints became due. */
  epoch: number;
  /** The thread has got all endpoints at least once. */
  complete: boolean;
  /** The epoch of the last message while the thread has not taken it, so that the next one waits; else null. */
  inFlight: number | null;
  readonly waiting: (() => void)[];
}

/**
 * Sends listener threads the endpoints of the services that they asked for: first all of them, in messages that keep no thread
 * for long, and then each one that changes. Nothing is sent twice. A change costs each thread that has the service one
 * endpoint, however many others there are.
 */
export class EndpointFeeds {
  readonly #view: EndpointView;
  readonly #perMessage: number;
  readonly #threads = new Map<number, Map<string, Feed>>();
  readonly #services = new Map<string, Set<Feed>>();
  readonly #changed = new Set<Feed>();
  #epochs = 0;

  /** `perMessage` bounds the endpoints of one message. */
  constructor(view: EndpointView, perMessage = ENDPOINTS_PER_MESSAGE) {
    this.#view = view;
    this.#perMessage = perMessage;
  }

  /** Forgets the endpoints that the thread had, because the thread is new or gone. */
  forget(thread: number): void {
    for (const feed of this.#threads.get(thread)?.values() ?? []) {
      feed.waiting.length = 0;
      this.#drop(feed);
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

  /** The thread took a message about the service, and is ready for another one if that was the last. */
  taken(thread: number, key: string, epoch: number): void {
    const feed = this.#threads.get(thread)?.get(key);
    if (feed?.inFlight !== epoch) return;
    feed.inFlight = null;
    this.#tell(feed);
  }

  /** The thread dropped what it had of the service; it still gets what another epoch brings, or has it by now. */
  release(thread: number, key: string, epoch: number): void {
    const feed = this.#threads.get(thread)?.get(key);
    if (feed?.epoch === epoch) this.#drop(feed);
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
    if (known !== undefined) {
      this.#follow(known, service);
      return known;
    }
    const feed: Feed = {
      thread,
      key,
      send,
      balancing: service.loadBalancing,
      due: new Set(),
      anew: true,
      epoch: 0,
      complete: false,
      inFlight: null,
      waiting: [],
    };
    feeds.set(key, feed);
    this.#services.set(key, (this.#services.get(key) ?? new Set()).add(feed));
    this.#begin(feed);
    return feed;
  }

  /** Begins anew if the service is balanced otherwise than the endpoints that the thread has were chosen by. */
  #follow(feed: Feed, { loadBalancing: balancing }: Service): void {
    if (JSON.stringify(feed.balancing) === JSON.stringify(balancing)) return;
    feed.balancing = balancing;
    this.#begin(feed);
  }

  #begin(feed: Feed): void {
    this.#epochs += 1;
    feed.epoch = this.#epochs;
    feed.anew = true;
    feed.complete = false;
    feed.due.clear();
    for (const uid of this.#view.members(feed.key)) feed.due.add(uid);
  }

  #drop(feed: Feed): void {
    const { thread, key } = feed;
    this.#threads.get(thread)?.delete(key);
    this.#changed.delete(feed);
    const others = this.#services.get(key);
    others?.delete(feed);
    if (others?.size === 0) this.#services.delete(key);
    // The waiting lookups ask again and begin anew.
    for (const then of feed.waiting.splice(0)) then();
  }

  #tell(feed: Feed): void {
    if (feed.inFlight !== null || (feed.due.size === 0 && !feed.anew)) return;
    const present = this.#view.serviceOf(feed.key);
    // The service is gone. When it comes back, the thread gets all endpoints anew.
    if (present === undefined) {
      this.#drop(feed);
      return;
    }
    // The view chooses endpoints by the present service, which may become the former one again before the thread asks.
    this.#follow(feed, present);
    const endpoints: [string, Endpoint | null][] = [];
    for (const uid of feed.due) {
      if (endpoints.length >= this.#perMessage) break;
      feed.due.delete(uid);
      endpoints.push([uid, this.#view.endpoint(feed.key, uid)]);
    }
    const { key: service, epoch, balancing } = feed;
    const anew = feed.anew ? { balancing } : null;
    feed.anew = false;
    feed.inFlight = epoch;
    feed.send({ type: 'endpoints', service, epoch, anew, endpoints });
    if (feed.due.size > 0) return;
    feed.complete = true;
    for (const then of feed.waiting.splice(0)) then();
  }
}

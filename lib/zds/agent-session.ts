/** The agent's side of one proxy connection: a Hello, a snapshot, then one message at a time. */
import type { Clock, Timer } from '../clock/clock.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { closeFd } from '../linux/netns.ts';
import type { NetnsHandle } from '../linux/netns-handle.ts';
import type { SeqpacketConnection, SeqpacketMessage } from '../linux/seqpacket.ts';
import { decodeAck, decodeHello, encodeRequest } from './frames.ts';
import type { ZdsHello, ZdsRequest, ZdsWorkloadInfo } from './frames.ts';
import { ANSWER_TIMEOUT_MS, MAX_WAITING_MESSAGES, OVERDUE_LIMIT_MS } from './limits.ts';

/** A pod to be served. `netns` null = a proxy that already serves it keeps it. */
export interface ZdsPod {
  readonly uid: string;
  readonly info: ZdsWorkloadInfo;
  readonly netns: NetnsHandle | null;
}

/** The events of a session. */
export interface AgentSessionEvents {
  /** Called when the Hello has come; returns the snapshot to send, in order. */
  onHello(session: AgentSession): Iterable<ZdsPod>;
  /** Called when the proxy answered an Add with an error, or not in time. */
  onRefused(session: AgentSession, uid: string, error: string): void;
  onEnd(session: AgentSession, why: string, error: Error | null): void;
}

interface Waiting {
  readonly request: ZdsRequest;
  /** A reference held until the packet is sent. */
  readonly netns: NetnsHandle | null;
  readonly promise: Promise<void>;
  readonly settle: (error: MeshError | null) => void;
}

/** One connected proxy. */
export class AgentSession {
  hello: ZdsHello | null = null;
  readonly id: number;
  readonly pid: number;
  readonly #connection: SeqpacketConnection;
  readonly #clock: Clock;
  readonly #events: AgentSessionEvents;
  readonly #waiting: Waiting[] = [];
  /** Pods that the proxy confirmed, by uid, with the namespace that it confirmed. */
  readonly #served = new Map<string, string>();
  /** Adds that wait to be sent or answered, by uid. */
  readonly #adding = new Map<string, { readonly netns: string; readonly promise: Promise<void> }>();
  #current: Waiting | null = null;
  #timer: Timer;
  #snapshotSent = false;
  #ended = false;

  constructor(
    id: number,
    connection: SeqpacketConnection,
    clock: Clock,
    events: AgentSessionEvents,
  ) {
    this.id = id;
    this.pid = connection.peer?.pid ?? 0;
    this.#connection = connection;
    this.#clock = clock;
    this.#events = events;
    connection.onMessage = (message) => this.#receive(message);
    connection.onClose = (error) =>
      this.#end(error === null ? 'closed by the proxy' : error.message, error);
    this.#timer = clock.after(ANSWER_TIMEOUT_MS, () =>
      this.#break(new MeshError('ZDS_TIMEOUT', `no Hello within ${ANSWER_TIMEOUT_MS} ms`)),
    );
  }

  /** True for a proxy that takes new pods. */
  get serving(): boolean {
    return this.hello?.state === 'serving' && !this.#ended;
  }

  /** True once the proxy answered the end of the snapshot. */
  get synced(): boolean {
    return this.#snapshotSent;
  }

  /** Returns whether the proxy confirmed this pod in this namespace. */
  serves(pod: ZdsPod): boolean {
    return pod.netns !== null && this.#served.get(pod.uid) === netnsKey(pod.netns);
  }

  /** Resolves when the proxy serves the pod. Rejects with ZDS_REFUSED, ZDS_TIMEOUT or ZDS_PROTOCOL otherwise. */
  ensure(pod: ZdsPod): Promise<void> {
    if (pod.netns === null || this.serves(pod)) return Promise.resolve();
    const adding = this.#adding.get(pod.uid);
    if (adding?.netns === netnsKey(pod.netns)) return adding.promise;
    return this.#add(pod, pod.netns);
  }

  /** Tells the proxy that the pod is gone. Resolves when it has answered. */
  del(uid: string): Promise<void> {
    this.#served.delete(uid);
    this.#adding.delete(uid);
    return this.#enqueue({ type: 'del', uid }, null);
  }

  /** Forgets the proxy's confirmation of the pod. */
  forget(uid: string): void {
    this.#served.delete(uid);
  }

  /** Ends the connection. */
  close(why: string): void {
    this.#end(why, null);
  }

  #add(pod: ZdsPod, netns: NetnsHandle): Promise<void> {
    this.#served.delete(pod.uid);
    const key = netnsKey(netns);
    const promise = this.#enqueue({ type: 'add', uid: pod.uid, info: pod.info }, netns);
    const entry = { netns: key, promise };
    this.#adding.set(pod.uid, entry);
    const settled = (error: MeshError | null): void => {
      if (this.#ended || this.#adding.get(pod.uid) !== entry) return;
      this.#adding.delete(pod.uid);
      if (error === null) this.#served.set(pod.uid, key);
      else this.#events.onRefused(this, pod.uid, error.message);
    };
    promise.then(
      () => settled(null),
      (error: unknown) => settled(error as MeshError),
    );
    return promise;
  }

  #enqueue(request: ZdsRequest, netns: NetnsHandle | null): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    // The caller handles it; answers to the snapshot go through the events.
    promise.catch(() => undefined);
    if (!this.#ended && this.#waiting.length >= MAX_WAITING_MESSAGES) {
      this.#break(new MeshError('ZDS_TIMEOUT', `${MAX_WAITING_MESSAGES} messages wait`));
    }
    if (this.#ended) {
      reject(new MeshError('ZDS_NO_PROXY', 'the proxy is gone'));
      return promise;
    }
    const settle = (error: MeshError | null): void => (error === null ? resolve() : reject(error));
    this.#waiting.push({ request, netns: netns?.retain() ?? null, promise, settle });
    if (this.hello !== null && this.#current === null) this.#next();
    return promise;
  }

  #next(): void {
    const next = this.#waiting.shift();
    if (next === undefined || this.#ended) return;
    this.#current = next;
    const sent = this.#connection.send(encodeRequest(next.request), next.netns?.fd);
    const release = (): void => next.netns?.release();
    // A failed send has ended the connection, and its end settles the message.
    sent.then(release, release);
    this.#timer.cancel();
    this.#timer = this.#clock.after(ANSWER_TIMEOUT_MS, () => this.#overdue(next));
  }

  /** Rejects the wait for an answer. The message stays in hand, so that a late answer does not count for the next message. */
  #overdue(waiting: Waiting): void {
    const what = describe(waiting.request);
    waiting.settle(
      new MeshError('ZDS_TIMEOUT', `${what} was not answered within ${ANSWER_TIMEOUT_MS} ms`),
    );
    this.#timer = this.#clock.after(OVERDUE_LIMIT_MS - ANSWER_TIMEOUT_MS, () =>
      this.#break(
        new MeshError('ZDS_TIMEOUT', `${what} was not answered within ${OVERDUE_LIMIT_MS} ms`),
      ),
    );
  }

  #receive(message: SeqpacketMessage): void {
    for (const fd of message.fds) closeFd(fd);
    try {
      if (message.truncated || message.fds.length > 0) {
        throw new MeshError('ZDS_PROTOCOL', 'packet truncated or with descriptors');
      }
      if (this.hello === null) this.#greet(decodeHello(message.data));
      else this.#answered(decodeAck(message.data));
    } catch (error) {
      this.#break(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #greet(hello: ZdsHello): void {
    this.#timer.cancel();
    this.hello = hello;
    for (const pod of this.#events.onHello(this)) {
      if (hello.state === 'serving' && pod.netns !== null) void this.#add(pod, pod.netns);
      else void this.#enqueue({ type: 'keep', uid: pod.uid }, null);
    }
    void this.#enqueue({ type: 'snapshotSent', generations: true }, null);
    if (this.#current === null) this.#next();
  }

  #answered(error: string | null): void {
    const current = this.#current;
    if (current === null) {
      throw new MeshError('ZDS_PROTOCOL', 'an answer to no message');
    }
    this.#current = null;
    this.#timer.cancel();
    const { request } = current;
    if (request.type === 'snapshotSent' && error === null) this.#snapshotSent = true;
    current.settle(
      error === null
        ? null
        : new MeshError(
            'ZDS_REFUSED',
            `${describe(request)} was refused by process ${this.pid}: ${error}`,
          ),
    );
    this.#next();
  }

  #break(error: Error): void {
    this.#end(error.message, error);
  }

  #end(why: string, error: Error | null): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#timer.cancel();
    this.#connection.close();
    const gone = new MeshError('ZDS_NO_PROXY', `the proxy is gone: ${why}`);
    this.#current?.settle(gone);
    this.#current = null;
    for (const waiting of this.#waiting.splice(0)) {
      waiting.netns?.release();
      waiting.settle(gone);
    }
    this.#events.onEnd(this, why, error);
  }
}

function netnsKey(netns: NetnsHandle): string {
  return `${netns.identity.device}:${netns.identity.inode}`;
}

function describe(request: ZdsRequest): string {
  return 'uid' in request ? `${request.type} of pod ${request.uid}` : request.type;
}

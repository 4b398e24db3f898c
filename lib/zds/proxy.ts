/**
 * The proxy's side of the ZDS socket: keeps a session to the node agent, answers every message once, and tells its handler
 * which pods to serve (docs/spec/inpod.md §2–§3, docs/decisions/zds-sessions.md).
 */
import { Backoff } from '../clock/backoff.ts';
import type { Clock, Timer } from '../clock/clock.ts';
import { MeshError, asMeshError, errorText } from '../errors/mesh-error.ts';
import { closeFd, isNetns } from '../linux/netns.ts';
import { connectSeqpacket } from '../linux/seqpacket.ts';
import type { SeqpacketConnection, SeqpacketMessage } from '../linux/seqpacket.ts';
import type { Logger } from '../log/logger.ts';
import { decodeRequest, encodeAck, encodeHello } from './frames.ts';
import type { ZdsHello, ZdsRequest, ZdsWorkloadInfo } from './frames.ts';
import { MAX_PACKET_BYTES, MAX_UNANSWERED } from './limits.ts';

/** Acts on the agent's messages. Calls come one at a time; the answer is sent when the promise settles. */
export interface ZdsProxyHandler {
  /** A session begins. Pods that its snapshot does not name are gone. Drop pending retries. */
  sessionStarted(): void;
  /**
   * Serve this pod. The handler now owns `netnsFd`. Resolve when all listeners listen, or when the pod is already served in the
   * same namespace. A rejection is answered as an error, and the session goes on.
   */
  add(uid: string, info: ZdsWorkloadInfo, netnsFd: number): Promise<void>;
  /** Stop serving this pod. Resolve for an unknown uid. */
  del(uid: string): Promise<void>;
  /** The snapshot is complete: stop every pod that is not in `uids`. */
  snapshot(uids: ReadonlySet<string>): Promise<void>;
  /** The session has ended; go on serving. */
  sessionEnded(why: string): void;
}

/** Counters for metrics. */
export interface ZdsProxyCounters {
  readonly sessions: number;
  readonly messages: number;
  /** Packets that broke the protocol; each ended its session. */
  readonly protocolErrors: number;
}

/** Settings and ports of a {@link ZdsProxy}. */
export interface ZdsProxyOptions {
  readonly path: string;
  readonly hello: ZdsHello;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Upstream waits up to 15 s (docs/spec/inpod.md §3). An attempt costs some system calls, and a proxy that starts before its agent
 * serves no pod until they meet.
 */
const CONNECT_BACKOFF = { baseMs: 20, maxMs: 1_000, jitter: 0 };
/** Delays after a session that broke (docs/spec/inpod.md §3). */
const REJECTED_BACKOFF = { baseMs: 500, maxMs: 15_000, jitter: 0.2 };

/** Keeps the session from {@link start} to {@link close}. */
export class ZdsProxy {
  readonly #options: ZdsProxyOptions;
  readonly #handler: ZdsProxyHandler;
  readonly #connectBackoff = new Backoff(CONNECT_BACKOFF);
  readonly #rejectedBackoff = new Backoff(REJECTED_BACKOFF);
  #hello: ZdsHello;
  #session: ZdsProxySession | null = null;
  #retry: Timer | null = null;
  #running = false;
  /** Whether the agent reads the generation and the state of a Hello. */
  #generations = false;
  #counters = { sessions: 0, messages: 0, protocolErrors: 0 };

  constructor(options: ZdsProxyOptions, handler: ZdsProxyHandler) {
    this.#options = options;
    this.#handler = handler;
    this.#hello = options.hello;
  }

  /** True from a sent Hello to the end of its session. */
  get connected(): boolean {
    return this.#session !== null;
  }

  get counters(): ZdsProxyCounters {
    return this.#counters;
  }

  /** Connects, and reconnects after each end. */
  start(): void {
    if (this.#running) return;
    this.#running = true;
    this.#connect();
  }

  /**
   * Takes no more pods, and still handles removals. An agent that reads the state of a Hello learns this in a new session, in
   * which pods come as Keep. Any other agent would take a new session for the newest proxy; with it the present session goes on
   * and there is no reconnect. Idempotent.
   */
  drain(): void {
    if (this.#hello.state === 'draining') return;
    this.#hello = { ...this.#hello, state: 'draining' };
    if (this.#generations) {
      this.#session?.end('the proxy drains', null);
      return;
    }
    this.#running = false;
    this.#retry?.cancel();
  }

  /** Ends the session and does not reconnect. Resolves when the present message is handled. Idempotent. */
  async close(): Promise<void> {
    this.#running = false;
    this.#retry?.cancel();
    const session = this.#session;
    session?.end('closed by this side', null);
    await session?.idle();
  }

  #connect(): void {
    this.#retry = null;
    if (!this.#running) return;
    const { path, log } = this.#options;
    let connection: SeqpacketConnection;
    try {
      connection = connectSeqpacket(path, { maxPacketBytes: MAX_PACKET_BYTES });
    } catch (error) {
      const delayMs = this.#connectBackoff.next();
      log.debug({ path, delayMs, reason: errorText(error) }, 'zds.unreachable');
      this.#connectLater(delayMs);
      return;
    }
    this.#connectBackoff.reset();
    this.#counters.sessions += 1;
    const session = new ZdsProxySession(connection, this.#handler, {
      onMessage: () => {
        this.#counters.messages += 1;
      },
      onSnapshot: (generations) => {
        this.#generations = generations;
      },
      onEnd: (why, error) => this.#ended(session, why, error),
    });
    this.#session = session;
    session.begin(this.#hello);
    log.info({ path, group: this.#hello.group, state: this.#hello.state }, 'zds.connected');
  }

  #ended(session: ZdsProxySession, why: string, error: MeshError | null): void {
    const { log } = this.#options;
    this.#session = null;
    if (error === null) {
      log.info({ reason: why }, 'zds.disconnected');
    } else {
      this.#counters.protocolErrors += 1;
      log.warn({ reason: error.message }, 'zds.protocol-error');
    }
    this.#handler.sessionEnded(why);
    // A session that broke, or that never got its snapshot, backs off: the next one may end alike.
    if (session.synced && error === null) this.#rejectedBackoff.reset();
    const delayMs = session.synced && error === null ? 0 : this.#rejectedBackoff.next();
    // The handler gets one message at a time, across sessions too.
    void session.idle().then(() => this.#connectLater(delayMs));
  }

  #connectLater(delayMs: number): void {
    if (!this.#running) return;
    this.#retry = this.#options.clock.after(delayMs, () => this.#connect());
  }
}

interface SessionEvents {
  onMessage(): void;
  onSnapshot(generations: boolean): void;
  onEnd(why: string, error: MeshError | null): void;
}

/** One connection's life: a Hello, then messages in turn, each answered once. */
class ZdsProxySession {
  synced = false;
  readonly #connection: SeqpacketConnection;
  readonly #handler: ZdsProxyHandler;
  readonly #events: SessionEvents;
  readonly #names = new Set<string>();
  #unanswered = 0;
  #ended = false;
  #work: Promise<void> = Promise.resolve();

  constructor(connection: SeqpacketConnection, handler: ZdsProxyHandler, events: SessionEvents) {
    this.#connection = connection;
    this.#handler = handler;
    this.#events = events;
    connection.onMessage = (message) => this.#receive(message);
    connection.onClose = (error) =>
      this.end(error === null ? 'closed by the agent' : error.message, null);
  }

  begin(hello: ZdsHello): void {
    this.#handler.sessionStarted();
    this.#connection
      .send(encodeHello(hello))
      .catch((error: unknown) => this.end(`Hello could not be sent: ${errorText(error)}`, null));
  }

  /** Resolves when no handler call runs. */
  idle(): Promise<void> {
    return this.#work;
  }

  end(why: string, error: MeshError | null): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#connection.close();
    this.#events.onEnd(why, error);
  }

  #receive(message: SeqpacketMessage): void {
    if (this.#ended || this.#unanswered >= MAX_UNANSWERED) {
      closeAll(message.fds);
      if (!this.#ended) {
        this.#fail(new MeshError('ZDS_PROTOCOL', 'a message before the last one was answered'));
      }
      return;
    }
    this.#unanswered += 1;
    this.#events.onMessage();
    this.#work = this.#handle(message);
  }

  async #handle(message: SeqpacketMessage): Promise<void> {
    let request: ZdsRequest;
    try {
      request = readRequest(message);
      this.#checkOrder(request);
    } catch (error) {
      closeAll(message.fds);
      this.#fail(asMeshError(error, 'ZDS_PROTOCOL'));
      return;
    }
    let failure: string | null = null;
    try {
      await this.#dispatch(request, message.fds[0]);
    } catch (error) {
      failure = errorText(error);
    }
    this.#unanswered -= 1;
    if (this.#ended) return;
    this.#connection
      .send(encodeAck(failure))
      .catch((error: unknown) => this.end(`Ack could not be sent: ${errorText(error)}`, null));
  }

  async #dispatch(request: ZdsRequest, fd: number | undefined): Promise<void> {
    switch (request.type) {
      case 'add':
        this.#names.add(request.uid);
        if (request.info !== null && fd !== undefined) {
          checkNetns(request.uid, fd);
          await this.#handler.add(request.uid, request.info, fd);
        }
        return;
      case 'keep':
        this.#names.add(request.uid);
        return;
      case 'del':
        this.#names.delete(request.uid);
        // During the snapshot the pod is only left out of it, so that a restart of the agent stops nothing early.
        if (this.synced) await this.#handler.del(request.uid);
        return;
      case 'snapshotSent':
        await this.#handler.snapshot(new Set(this.#names));
        this.#names.clear();
        this.synced = true;
        this.#events.onSnapshot(request.generations === true);
    }
  }

  #checkOrder(request: ZdsRequest): void {
    if (!this.synced) return;
    if (request.type === 'keep') {
      throw new MeshError('ZDS_PROTOCOL', 'Keep after the end of the snapshot');
    }
    if (request.type === 'snapshotSent') {
      throw new MeshError('ZDS_PROTOCOL', 'SnapshotSent twice in one session');
    }
  }

  /** Answers with the error and ends the session. */
  #fail(failure: MeshError): void {
    this.#unanswered = 0;
    // The session ends whether or not the answer gets through; the agent sees either the answer or a closed socket.
    const end = (): void => this.end(failure.message, failure);
    this.#connection.send(encodeAck(failure.message)).then(end, end);
  }
}

/** Checks a packet and its descriptors (docs/spec/inpod.md §2). Closes no descriptor. */
function readRequest(message: SeqpacketMessage): ZdsRequest {
  if (message.truncated) {
    throw new MeshError(
      'ZDS_PROTOCOL',
      `packet or its descriptors truncated at ${message.data.length} bytes`,
    );
  }
  if (message.fds.length > 1) {
    throw new MeshError('ZDS_PROTOCOL', `${message.fds.length} descriptors in one packet`);
  }
  const request = decodeRequest(message.data);
  if (request.type === 'add') {
    if (message.fds.length === 0) {
      throw new MeshError('ZDS_PROTOCOL', `Add of ${request.uid} without a descriptor`);
    }
    if (request.info === null) {
      throw new MeshError('ZDS_PROTOCOL', `Add of ${request.uid} without workload_info`);
    }
  } else if (message.fds.length > 0) {
    throw new MeshError('ZDS_PROTOCOL', `${request.type} with a descriptor`);
  }
  return request;
}

/** Throws NETNS_UNAVAILABLE, and closes the descriptor, when it is no network namespace. The session goes on: the agent has other pods. */
function checkNetns(uid: string, fd: number): void {
  if (isNetns(fd)) return;
  closeFd(fd);
  throw new MeshError('NETNS_UNAVAILABLE', `Add of ${uid}: the descriptor is no network namespace`);
}

function closeAll(fds: readonly number[]): void {
  for (const fd of fds) closeFd(fd);
}

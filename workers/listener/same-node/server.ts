import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';
import type { RefuseStatus } from '../../../lib/hbone/engine.ts';
import { closeFd } from '../../../lib/linux/netns.ts';
import { resetOnClose } from '../../../lib/linux/sockets.ts';
import { abortSplice, countSplice } from '../../../lib/linux/splice-pump.ts';
import { ENDED_COPY } from '../../../lib/net/bidi-copy.ts';
import type { Copy, CopyResult } from '../../../lib/net/bidi-copy.ts';
import type { RawSocket } from '../../../lib/net/raw-socket.ts';
import type { ArrivedRequest, ConnectAnswer } from '../tunnel/inbound.ts';
import type { AskedMessage, AskerMessage, SameNodeEnd, SameNodeRequest } from './messages.ts';

type Send = (message: AskedMessage) => void;

/** Serves a request to its end; may refuse, fail or decline it. */
export type ServeArrival = (arrival: Arrival, request: SameNodeRequest) => Promise<void>;

/** The part of a thread that another one asks, on one port. */
export class Asked {
  readonly #send: Send;
  readonly #serve: ServeArrival;
  readonly #arrivals = new Map<number, Arrival>();

  constructor(send: Send, serve: ServeArrival) {
    this.#send = send;
    this.#serve = serve;
  }

  receive(message: AskerMessage): void {
    const { id } = message;
    if (message.type === 'connect') {
      const arrival = new Arrival(id, message.request, this.#send);
      this.#arrivals.set(id, arrival);
      void this.#begin(arrival, message.request);
      return;
    }
    const arrival = this.#arrivals.get(id);
    switch (message.type) {
      case 'cancel':
        arrival?.cancel();
        break;
      case 'joined':
        arrival?.joined(message.splice);
        break;
      case 'dropped':
        arrival?.cancel();
        break;
      case 'ended':
        arrival?.ended(message.end);
        break;
    }
  }

  /** The other thread is gone, and with it every connection it had joined. */
  close(): void {
    for (const arrival of this.#arrivals.values()) arrival.cancel();
  }

  async #begin(arrival: Arrival, request: SameNodeRequest): Promise<void> {
    try {
      await this.#serve(arrival, request);
    } catch (error) {
      arrival.fail(asMeshError(error, 'UPSTREAM_CONNECT'));
    } finally {
      await arrival.over;
      this.#arrivals.delete(arrival.id);
    }
  }
}

/**
 * One connection that another thread asks for, as the inbound code sees it. It is undecided until one of `carry`, `refuse`,
 * `fail` and `decline`; what comes after the decision has no effect.
 */
export class Arrival implements ArrivedRequest {
  readonly id: number;
  readonly method = 'CONNECT';
  readonly authority: string;
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Resolves when nothing more will come of it. */
  readonly over: Promise<void>;
  readonly #send: Send;
  readonly #markOver: () => void;
  readonly #aborted: ((reason: MeshError | null) => void)[] = [];
  #revoked: MeshError | null = null;
  #state: 'undecided' | 'answered' | 'carried' | 'over' = 'undecided';
  #settle: ((copy: RemoteCopy | null) => void) | null = null;
  #copy: RemoteCopy | null = null;

  constructor(id: number, request: SameNodeRequest, send: Send) {
    this.id = id;
    this.authority = request.authority;
    this.headers = request.headers;
    this.#send = send;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.over = promise;
    this.#markOver = resolve;
  }

  onAborted(listener: (reason: MeshError | null) => void): void {
    if (this.#state === 'over') listener(this.#revoked);
    else this.#aborted.push(listener);
  }

  refuse(status: RefuseStatus): void {
    this.#decide({ type: 'refuse', id: this.id, status });
  }

  /** Ends it as a failed handshake would. */
  fail(error: MeshError): void {
    this.#decide({ type: 'fail', id: this.id, error: error.toWire() });
  }

  /** Ends the connection in any state: its certificate is no longer valid. */
  revoke(error: MeshError): void {
    if (this.#state === 'over') return;
    if (this.#state !== 'undecided') {
      this.#send({ type: 'revoked', id: this.id, error: error.toWire() });
      return;
    }
    this.#revoked = error;
    this.fail(error);
    for (const listener of this.#aborted) listener(error);
  }

  /** Leaves it to the tunnel. */
  decline(reason: string): void {
    this.#decide({ type: 'decline', id: this.id, reason });
  }

  /** Hands the application over to the asker; null when nobody wants it any more. */
  async carry(application: RawSocket, { headers, head }: ConnectAnswer): Promise<Copy | null> {
    if (this.#state !== 'undecided') {
      application.reset();
      return null;
    }
    if (application.gone) {
      this.#decide({ type: 'closed', id: this.id });
      return ENDED_COPY;
    }
    const fd = handedOver(application);
    this.#state = 'answered';
    const { promise, resolve } = Promise.withResolvers<RemoteCopy | null>();
    this.#settle = resolve;
    this.#send({ type: 'answer', id: this.id, fd, headers, head });
    const copy = await promise;
    // Nobody took the connection over: its application must not see an orderly end.
    if (copy === null) resetOnClose(fd);
    closeFd(fd);
    return copy;
  }

  joined(splice: number): void {
    if (this.#state !== 'answered') return;
    this.#state = 'carried';
    this.#copy = new RemoteCopy(splice);
    this.#settle?.(this.#copy);
  }

  ended(end: SameNodeEnd): void {
    if (this.#state !== 'carried') return;
    this.#state = 'over';
    const error = end.error === null ? null : MeshError.fromWire(end.error);
    this.#copy?.end({ error }, end.counts);
    this.#markOver();
  }

  /** The asker has given up, or is gone. */
  cancel(): void {
    const before = this.#state;
    if (before === 'over') return;
    this.#state = 'over';
    if (before === 'undecided') for (const listener of this.#aborted) listener(null);
    this.#settle?.(null);
    this.#copy?.end({ error: null }, null);
    this.#markOver();
  }

  #decide(message: AskedMessage): void {
    if (this.#state !== 'undecided') return;
    this.#state = 'over';
    this.#send(message);
    this.#markOver();
  }
}

/** Takes the descriptor of an application that was never read from. The connection is closed when that fails. */
function handedOver(application: RawSocket): number {
  try {
    return application.take().fd;
  } catch (error) {
    application.reset();
    throw error;
  }
}

/** A connection that another thread has joined. */
class RemoteCopy implements Copy {
  readonly done: Promise<CopyResult>;
  readonly #splice: number;
  readonly #resolve: (result: CopyResult) => void;
  #last: Copy['counts'] = { fromA: 0, fromB: 0 };
  #over = false;

  constructor(splice: number) {
    this.#splice = splice;
    const { promise, resolve } = Promise.withResolvers<CopyResult>();
    this.done = promise;
    this.#resolve = resolve;
  }

  get counts(): Copy['counts'] {
    if (!this.#over) this.#last = countSplice(this.#splice) ?? this.#last;
    return this.#last;
  }

  abort(): void {
    if (!this.#over) abortSplice(this.#splice);
  }

  end(result: CopyResult, counts: SameNodeEnd['counts'] | null): void {
    if (this.#over) return;
    this.#last = counts === null ? this.counts : fromEnd(counts);
    this.#over = true;
    this.#resolve(result);
  }
}

/** Counts of another thread, whose clock began at another moment than ours. */
function fromEnd({ fromA, fromB, firstFromBAt }: SameNodeEnd['counts']): Copy['counts'] {
  return firstFromBAt === null
    ? { fromA, fromB }
    : { fromA, fromB, firstFromBMs: firstFromBAt - performance.timeOrigin };
}

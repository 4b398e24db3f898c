import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { cutByPeer, endedUnanswered } from '../../../lib/hbone/engine.ts';
import { RESPONSE_TIMEOUT_MS } from '../../../lib/hbone/limits.ts';
import { closeFd } from '../../../lib/linux/netns.ts';
import { resetOnClose } from '../../../lib/linux/sockets.ts';
import { duplicateFd, splicePump } from '../../../lib/linux/splice-pump.ts';
import type { Splice } from '../../../lib/linux/splice-pump.ts';
import { ENDED_COPY } from '../../../lib/net/bidi-copy.ts';
import type { Copy } from '../../../lib/net/bidi-copy.ts';
import type { Detached, RawSocket } from '../../../lib/net/raw-socket.ts';
import type { AskedMessage, AskerMessage, SameNodeEnd, SameNodeRequest } from './messages.ts';

type Answer = Extract<AskedMessage, { type: 'answer' }>;

interface Pending {
  readonly timer: Timer;
  readonly request: SameNodeRequest;
  readonly resolve: (offer: Offer | null) => void;
  readonly reject: (error: MeshError) => void;
}

/** A copy that may also end for a reason of ours. */
export interface FailingCopy extends Copy {
  fail(error: MeshError): void;
}

/** An application that is connected in the other thread, waiting for its client. */
export interface Offer {
  readonly headers: Readonly<Record<string, string>>;
  /** Joins the client to it; throws NATIVE_SYSCALL or UPSTREAM_CONNECT when the client cannot be taken. Once. */
  join(client: RawSocket): FailingCopy;
  /** Nobody wants it any more. */
  drop(): void;
}

/** The part of a thread that asks another one, on one port. */
export class Asker {
  readonly #send: (message: AskerMessage) => void;
  readonly #clock: Clock;
  readonly #pending = new Map<number, Pending>();
  readonly #joined = new Map<number, JoinedCopy>();
  /** Answers whose clients are not joined yet, and those of them that were taken back. */
  readonly #offered = new Set<number>();
  readonly #revoked = new Map<number, MeshError>();
  #nextId = 1;
  #closed = false;

  constructor(send: (message: AskerMessage) => void, clock: Clock) {
    this.#send = send;
    this.#clock = clock;
  }

  /**
   * Asks for a connection. Resolves with null when it has to go by the tunnel. Rejects as a tunnel would: with
   * TUNNEL_REFUSED, TLS_PEER_IDENTITY, UPSTREAM_TIMEOUT, or, when the other thread is gone, TUNNEL_CLOSED before and TUNNEL_RESET
   * after it was asked.
   * `onCancel` is given what ends the wait with TUNNEL_RESET.
   */
  connect(request: SameNodeRequest, onCancel: (cancel: () => void) => void): Promise<Offer | null> {
    if (this.#closed) return Promise.reject(threadGone());
    const id = this.#nextId;
    this.#nextId += 1;
    const { promise, resolve, reject } = Promise.withResolvers<Offer | null>();
    const giveUp = (error: MeshError): void => {
      if (this.#take(id) === null) return;
      this.#send({ type: 'cancel', id });
      reject(error);
    };
    const timer = this.#clock.after(RESPONSE_TIMEOUT_MS, () =>
      giveUp(
        new MeshError(
          'UPSTREAM_TIMEOUT',
          `the peer did not answer the connect request within ${RESPONSE_TIMEOUT_MS} ms`,
        ),
      ),
    );
    this.#pending.set(id, { timer, request, resolve, reject });
    this.#send({ type: 'connect', id, request });
    onCancel(() => giveUp(new MeshError('TUNNEL_RESET', 'nobody waits for the answer any more')));
    return promise;
  }

  receive(message: Exclude<AskedMessage, { type: 'serving' | 'gone' }>): void {
    const { id } = message;
    if (message.type === 'revoked') {
      this.#revoke(id, MeshError.fromWire(message.error));
      return;
    }
    const pending = this.#take(id);
    if (pending === null) {
      // The answer came too late; its sender waits to hear about the descriptor.
      if (message.type === 'answer') this.#send({ type: 'dropped', id });
      return;
    }
    switch (message.type) {
      case 'answer':
        pending.resolve(this.#offer(message));
        break;
      case 'closed':
        pending.resolve(closedOffer());
        break;
      case 'refuse':
        pending.reject(refused(message.status, pending.request.authority));
        break;
      case 'fail':
        pending.reject(MeshError.fromWire(message.error));
        break;
      case 'decline':
        pending.resolve(null);
        break;
    }
  }

  /** The other thread is gone: nobody re-evaluates its connections any more, so they end with it. */
  close(): void {
    this.#closed = true;
    for (const { timer, reject } of this.#pending.values()) {
      timer.cancel();
      reject(endedUnanswered(threadGone()));
    }
    this.#pending.clear();
    for (const copy of this.#joined.values()) copy.fail(threadGone());
  }

  #take(id: number): Pending | null {
    const pending = this.#pending.get(id);
    if (pending === undefined) return null;
    this.#pending.delete(id);
    pending.timer.cancel();
    return pending;
  }

  #revoke(id: number, error: MeshError): void {
    const copy = this.#joined.get(id);
    if (copy !== undefined) copy.fail(error);
    else if (this.#offered.has(id)) this.#revoked.set(id, error);
  }

  #offer(answer: Answer): Offer {
    const { id, headers } = answer;
    this.#offered.add(id);
    return {
      headers,
      join: (client) => this.#join(answer, client),
      drop: () => this.#drop(id),
    };
  }

  #drop(id: number): void {
    this.#offered.delete(id);
    this.#revoked.delete(id);
    this.#send({ type: 'dropped', id });
  }

  #join({ id, fd, head }: Answer, client: RawSocket): FailingCopy {
    if (this.#closed) throw threadGone();
    const revoked = this.#revoked.get(id);
    if (revoked !== undefined) {
      this.#drop(id);
      throw revoked;
    }
    let splice: Splice;
    try {
      splice = joinFd(client, fd, head);
    } catch (error) {
      this.#drop(id);
      throw error;
    }
    this.#offered.delete(id);
    this.#send({ type: 'joined', id, splice: splice.id });
    const copy = new JoinedCopy(splice);
    this.#joined.set(id, copy);
    void copy.done.then(({ error }) => {
      this.#joined.delete(id);
      this.#send({ type: 'ended', id, end: endOf(splice, error) });
    });
    return copy;
  }
}

/** The application closed the connection at once, and so is the client's. */
function closedOffer(): Offer {
  return {
    headers: {},
    join: (client) => {
      client.reset();
      return { ...ENDED_COPY, fail() {} };
    },
    drop() {},
  };
}

class JoinedCopy implements FailingCopy {
  readonly done: Promise<{ readonly error: MeshError | null }>;
  readonly #splice: Splice;
  #failure: MeshError | null = null;

  constructor(splice: Splice) {
    this.#splice = splice;
    this.done = splice.done.then(({ error }) => ({ error: this.#failure ?? error }));
  }

  get counts(): Copy['counts'] {
    return this.#splice.counts;
  }

  /** The other pod's thread learns by the error that it was no ordinary end. */
  abort(): void {
    this.fail(cutByPeer('on the same node'));
  }

  fail(error: MeshError): void {
    this.#failure ??= error;
    this.#splice.abort();
  }
}

/** `fd` stays with its owner. */
function joinFd(client: RawSocket, fd: number, head: Uint8Array | null): Splice {
  const application = duplicateFd(fd);
  let near: Detached | null = null;
  try {
    near = client.take();
    return splicePump(near, {
      fd: application,
      first: head === null ? null : Buffer.from(head),
    });
  } catch (error) {
    closeFd(application);
    if (near !== null) {
      resetOnClose(near.fd);
      closeFd(near.fd);
    }
    throw error;
  }
}

function endOf({ counts }: Splice, error: MeshError | null): SameNodeEnd {
  const { fromA, fromB, firstFromBMs } = counts;
  const firstFromBAt = firstFromBMs === undefined ? null : performance.timeOrigin + firstFromBMs;
  return { counts: { fromA, fromB, firstFromBAt }, error: error?.toWire() ?? null };
}

function refused(status: number, authority: string): MeshError {
  return new MeshError('TUNNEL_REFUSED', `the peer refused the connection with status ${status}`, {
    detail: { status, authority },
  });
}

function threadGone(): MeshError {
  return new MeshError('TUNNEL_CLOSED', 'the thread that serves the other pod has ended');
}

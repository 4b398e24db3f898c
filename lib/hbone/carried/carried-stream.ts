import { errorCode } from '../session/frames.ts';
import type { FieldList } from '../session/hpack-decoder.ts';
import { ENDED } from '../session/resets.ts';
import type { StreamOver } from '../session/resets.ts';
import type { Detached, RawSocket } from '../../net/raw-socket.ts';
import type { SessionStream, WireHost } from '../session/wire.ts';
import type { CarriedLink, StreamCounts, StreamEnded } from '../../linux/carry.ts';

/** Learns of the end of a stream, once: when the session has decided and the thread has closed the socket. */
export interface StreamWatcher {
  onClosed(over: StreamOver, counts: StreamCounts): void;
  /** Our END_STREAM is on its way. Who takes it is told. */
  onEndSent?(): void;
}

/** A stream whose bytes a native thread moves, from the moment it is joined with a socket. */
export class CarriedStream implements SessionStream {
  readonly id: number;
  over = false;
  resetCode: number | null = null;
  remoteEnded = false;
  /** Whether only bytes for its socket are left, perhaps one that is not joined yet. The session has forgotten it then. */
  delivers = false;
  /** Whether the thread was told to reset it. */
  isReset = false;
  onHead: ((list: FieldList) => void) | null = null;
  #onOver: (() => void) | null = null;
  readonly #host: WireHost;
  readonly #link: CarriedLink;
  #localEnded = false;
  /** The thread ends it without being told. */
  #isDone = false;
  #watcher: StreamWatcher | null = null;
  /** The socket that was lent to the stream, and whether the stream ended with it before it was watched. */
  #lent: RawSocket | null = null;
  #kept = false;
  /** The decision of the session, and the report of the thread. */
  #outcome: StreamOver | null = null;
  #end: StreamEnded | null = null;

  constructor(id: number, host: WireHost, link: CarriedLink) {
    this.id = id;
    this.#host = host;
    this.#link = link;
  }

  /** The counts so far, null when the stream has no socket, or its socket did not end cleanly. */
  get counts(): StreamCounts | null {
    return this.#end === null ? this.#link.counts(this.id) : null;
  }

  /** Joins the stream with a socket, and takes its descriptor unless it throws NATIVE_SYSCALL. `watcher` learns of the end. */
  attach(socket: Detached, watcher: StreamWatcher): void {
    this.#link.attach(this.id, socket, watcher.onEndSent !== undefined);
    this.#watcher = watcher;
    this.#settle();
  }

  lend(client: RawSocket): void {
    const isLent = client.lend(
      (fd) => this.#link.offer(this.id, fd),
      () => this.#link.recall(this.id),
    );
    if (isLent) this.#lent = client;
  }

  /** Whether the socket was lent to the stream, and not given back. */
  holds(client: RawSocket): boolean {
    return this.#lent === client && (this.#kept || client.lent);
  }

  /** Joins the stream with the lent socket, where that is not done yet. `watcher` learns of the end. */
  join(watcher: StreamWatcher): void {
    this.#link.join(this.id);
    this.#lent?.giveUp();
    this.#watcher = watcher;
    this.#settle();
  }

  listen(onOver: (() => void) | null, onHead: ((list: FieldList) => void) | null): void {
    this.#onOver = onOver;
    this.onHead = onHead;
  }

  expect(bytes: number): void {
    this.#link.expect(this.id, bytes);
  }

  remoteEnd(): void {
    this.remoteEnded = true;
    this.#link.remoteEnd(this.id);
    this.#bothEnded();
  }

  endTaken(): void {
    this.#localEnded = true;
    this.#link.end(this.id);
    this.#bothEnded();
  }

  reset(code: number): void {
    if (!this.over) this.#host.resetStream(this, code);
    else if (this.delivers && this.#end === null) this.#link.reset(this.id, code);
  }

  finish(over: StreamOver): void {
    if (this.over) return;
    this.over = true;
    this.#outcome = over;
    // A stream that delivers may still be joined.
    if (this.#watcher === null && !this.delivers) this.#kept = this.#lent?.recall() ?? false;
    // The thread still knows a stream that a GOAWAY of the peer has ended.
    const isKnown = this.isReset || this.delivers || this.#isDone;
    if (this.#end === null && !isKnown && !this.#host.over) {
      this.#link.reset(this.id, errorCode.cancel);
    }
    this.#onOver?.();
    this.#onOver = null;
    this.#settle();
  }

  endSent(): void {
    this.#watcher?.onEndSent?.();
  }

  /** The thread has ended the stream and closed its socket. */
  ended(end: StreamEnded): void {
    this.#end = end;
    this.#settle();
  }

  /** Header lists have ended both directions: the session forgets the stream now, as later frames are wrong. */
  #bothEnded(): void {
    if (!this.remoteEnded || !this.#localEnded || this.over) return;
    this.#isDone = true;
    this.#host.forget(this, 'done', ENDED);
  }

  #settle(): void {
    if (this.#outcome === null || this.#end === null) return;
    const watcher = this.#watcher;
    this.#watcher = null;
    watcher?.onClosed(this.#outcome, this.#end.counts);
  }
}

/** AF_UNIX SOCK_SEQPACKET sockets on the event loop of the calling thread: whole packets, with passed descriptors. */
import { lstatSync, unlinkSync } from 'node:fs';
import { MeshError } from '../errors/mesh-error.ts';
import { callNative } from './native.ts';
import type { PollHandle } from './native.ts';

const LISTEN_BACKLOG = 32;
/** Packets read from one connection before the loop turns to others. */
const MAX_PACKETS_PER_TURN = 16;
/** Connections accepted before the loop turns to others. */
const MAX_ACCEPTS_PER_TURN = 16;
/** Unsent packets of one connection; a protocol with one open message needs one. */
const MAX_QUEUED_PACKETS = 1_024;
/** Receive buffer of the ZDS protocol (docs/spec/inpod.md §2). */
const DEFAULT_MAX_PACKET_BYTES = 1_024;

/** One received packet. Its handler owns `fds` and closes them with `closeFd`. */
export interface SeqpacketMessage {
  readonly data: Buffer;
  readonly fds: readonly number[];
  /** The packet or its descriptors did not fit; the rest is lost. */
  readonly truncated: boolean;
}

/** Settings of a connection. */
export interface SeqpacketOptions {
  /** Longer packets are truncated. Default 1024. */
  readonly maxPacketBytes?: number;
}

/** The process at the other end, as the kernel recorded it at connect time. */
export interface PeerCredentials {
  readonly pid: number;
  readonly uid: number;
}

type Pending = {
  readonly bytes: Uint8Array;
  readonly fd: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
};

/**
 * A connected socket. Assign the handlers in the turn of the event loop that returns the connection. `onClose` is called
 * exactly once: with null for a clean end by either side, else with the failure.
 */
export class SeqpacketConnection {
  onMessage: (message: SeqpacketMessage) => void = closeUnclaimed;
  onClose: (error: Error | null) => void = () => undefined;
  /** Null on the connecting side. */
  readonly peer: PeerCredentials | null;
  readonly #fd: number;
  readonly #poll: PollHandle;
  readonly #maxPacketBytes: number;
  readonly #queue: Pending[] = [];
  #open = true;

  constructor(fd: number, peer: PeerCredentials | null, options: SeqpacketOptions = {}) {
    this.#fd = fd;
    this.peer = peer;
    this.#maxPacketBytes = options.maxPacketBytes ?? DEFAULT_MAX_PACKET_BYTES;
    this.#poll = callNative((native) =>
      native.pollOpen(fd, (readable, writable) => this.#ready(readable, writable), false),
    );
    this.#watch();
  }

  /** False once closed by either side. */
  get open(): boolean {
    return this.#open;
  }

  /**
   * Sends one packet, with a copy of descriptor `fd` if given; the caller keeps its descriptor until the promise settles.
   * Resolves when the kernel has the packet. Rejects when the connection ends first.
   */
  send(bytes: Uint8Array, fd?: number): Promise<void> {
    return new Promise((resolve, reject) => {
      if (!this.#open) {
        reject(closedError());
        return;
      }
      if (this.#queue.length >= MAX_QUEUED_PACKETS) {
        reject(
          new MeshError('ZDS_PROTOCOL', `the peer takes no packets: ${MAX_QUEUED_PACKETS} wait`),
        );
        return;
      }
      this.#queue.push({ bytes, fd: fd ?? -1, resolve, reject });
      if (this.#queue.length === 1) this.#flush();
    });
  }

  /** Ends the connection and rejects unsent packets. Idempotent. */
  close(): void {
    this.#end(null);
  }

  #watch(): void {
    callNative((native) => native.pollWatch(this.#poll, true, this.#queue.length > 0));
  }

  #ready(readable: boolean, writable: boolean): void {
    if (writable) this.#flush();
    if (readable) this.#receive();
  }

  #flush(): void {
    try {
      for (let next = this.#queue[0]; this.#open && next !== undefined; next = this.#queue[0]) {
        const { bytes, fd } = next;
        if (!callNative((native) => native.seqpacketSend(this.#fd, bytes, fd))) break;
        this.#queue.shift();
        next.resolve();
      }
      if (this.#open) this.#watch();
    } catch (error) {
      this.#end(toError(error));
    }
  }

  #receive(): void {
    for (let count = 0; this.#open && count < MAX_PACKETS_PER_TURN; count += 1) {
      let message: SeqpacketMessage | null;
      try {
        message = callNative((native) => native.seqpacketReceive(this.#fd, this.#maxPacketBytes));
      } catch (error) {
        this.#end(toError(error));
        return;
      }
      if (message === null) return;
      // An empty packet cannot be told from the end of the stream: both end the session.
      if (message.data.length === 0) {
        closeUnclaimed(message);
        this.#end(null);
        return;
      }
      this.onMessage(message);
    }
  }

  #end(error: Error | null): void {
    if (!this.#open) return;
    this.#open = false;
    callNative((native) => {
      native.pollClose(this.#poll);
      native.closeFd(this.#fd);
    });
    const reason = error ?? closedError();
    for (const pending of this.#queue.splice(0)) pending.reject(reason);
    this.onClose(error);
  }
}

/** A listening socket; its file is removed on close. */
export class SeqpacketServer {
  onConnection: (connection: SeqpacketConnection) => void = (connection) => connection.close();
  /** Called when an accept failed (out of descriptors, say); the server goes on. */
  onError: (error: Error) => void;
  readonly #path: string;
  readonly #fd: number;
  readonly #poll: PollHandle;
  readonly #options: SeqpacketOptions;
  readonly #inode: bigint;
  #open = true;

  constructor(path: string, fd: number, options: SeqpacketOptions & ServerOptions) {
    this.#path = path;
    this.#fd = fd;
    this.#options = options;
    this.onError = options.onError;
    this.#inode = lstatSync(path, { bigint: true }).ino;
    this.#poll = callNative((native) => native.pollOpen(fd, () => this.#accept(), false));
    callNative((native) => native.pollWatch(this.#poll, true, false));
  }

  /** Stops accepting; accepted connections stay. Idempotent. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    callNative((native) => {
      native.pollClose(this.#poll);
      native.closeFd(this.#fd);
    });
    // A successor may have put its own socket there.
    removeIfInode(this.#path, this.#inode);
  }

  /** Pauses or resumes accepting; new connections wait in the kernel's backlog meanwhile. */
  setAccepting(accepting: boolean): void {
    if (this.#open) callNative((native) => native.pollWatch(this.#poll, accepting, false));
  }

  #accept(): void {
    for (let count = 0; this.#open && count < MAX_ACCEPTS_PER_TURN; count += 1) {
      try {
        const accepted = callNative((native) => native.seqpacketAccept(this.#fd));
        if (accepted === null) return;
        const { fd, ...peer } = accepted;
        this.onConnection(new SeqpacketConnection(fd, peer, this.#options));
      } catch (error) {
        this.onError(toError(error));
        return;
      }
    }
  }
}

/** Settings of a server. */
export interface ServerOptions {
  /** File mode of the socket, e.g. 0o600. */
  readonly mode: number;
  readonly onError: (error: Error) => void;
}

/**
 * Listens on `path`. Replaces a socket file that a predecessor left there, but no other kind of file. Throws NATIVE_SYSCALL when
 * the path cannot be bound.
 */
export function listenSeqpacket(
  path: string,
  options: SeqpacketOptions & ServerOptions,
): SeqpacketServer {
  removeIfInode(path, null);
  const fd = callNative((native) => native.seqpacketListen(path, options.mode, LISTEN_BACKLOG));
  return new SeqpacketServer(path, fd, options);
}

/** Connects to `path`. Throws NATIVE_SYSCALL (ENOENT, ECONNREFUSED, EAGAIN …) when no server accepts there. */
export function connectSeqpacket(
  path: string,
  options: SeqpacketOptions = {},
): SeqpacketConnection {
  const fd = callNative((native) => native.seqpacketConnect(path));
  return new SeqpacketConnection(fd, null, options);
}

function removeIfInode(path: string, inode: bigint | null): void {
  const status = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  if (status === undefined || !status.isSocket()) return;
  if (inode === null || status.ino === inode) unlinkSync(path);
}

function closeUnclaimed(message: SeqpacketMessage): void {
  for (const fd of message.fds) callNative((native) => native.closeFd(fd));
}

function closedError(): MeshError {
  return new MeshError('ZDS_PROTOCOL', 'the connection is closed');
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

import { Socket } from 'node:net';
import { present } from '../errors/assert.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { closeFd } from '../linux/netns.ts';
import { holdFd, releaseFd, resetHeld } from '../linux/sockets.ts';
import { duplicateFd } from '../linux/splice-pump.ts';
import { adoptSocket, resetSocket, socketFd } from './socket.ts';

/** A connection outside of JavaScript: its descriptor, which the holder owns, and bytes on their way. */
export interface Detached {
  readonly fd: number;
  /** Bytes that go to the peer first. */
  readonly first: Buffer | null;
  /** Bytes of the peer that were read before. */
  readonly read: Buffer | null;
}

/**
 * A connected TCP socket whose bytes nobody moves yet. It is a descriptor until somebody needs a Node socket, which most connections never do.
 * It has one owner: who takes or adopts it owns the connection. If the thread ends before, the connection is reset.
 */
export class RawSocket {
  /** Bytes that its peer gets before all others. */
  first: Buffer | null = null;
  #fd: number | null = null;
  #socket: Socket | null = null;
  /** Gets a descriptor that was lent back; false when it was kept. */
  #recall: (() => boolean) | null = null;

  /** Takes a descriptor that this thread holds (see {@link RawSocket.of}), or a connected, half-open and paused socket. */
  constructor(from: number | Socket) {
    if (typeof from === 'number') this.#fd = from;
    else this.#socket = from;
  }

  /** Takes ownership of a connected descriptor. */
  static of(fd: number): RawSocket {
    holdFd(fd);
    return new RawSocket(fd);
  }

  /** Makes one whose connection has ended already. */
  static ended(): RawSocket {
    return new RawSocket(new Socket().destroy());
  }

  /** Whether it was closed, or belongs to somebody else now. */
  get gone(): boolean {
    return this.#fd === null && (this.#socket?.destroyed ?? true);
  }

  /** Whether it can leave JavaScript: it is open, and no bytes wait in JavaScript to be written. */
  get mayLeave(): boolean {
    if (this.#fd !== null) return true;
    const socket = this.#socket;
    return (
      socket !== null &&
      !socket.destroyed &&
      !socket.connecting &&
      socket.writableLength === 0 &&
      !socket.writableEnded
    );
  }

  /**
   * Lends the descriptor to `borrower`, which ends the thread's hold of it, may keep it at any time, and then owns the connection; `recall` gets it back, and returns false when it was
   * kept. Returns false, with nothing lent, if there is no descriptor or bytes wait. Throws what `borrower` throws.
   */
  lend(borrower: (fd: number) => void, recall: () => boolean): boolean {
    if (this.#fd === null || this.first !== null || this.#recall !== null) return false;
    borrower(this.#fd);
    this.#recall = recall;
    return true;
  }

  /** Whether it is lent. */
  get lent(): boolean {
    return this.#recall !== null;
  }

  /** Ends the loan. Returns whether the borrower has kept the connection. */
  recall(): boolean {
    const recall = this.#recall;
    this.#recall = null;
    if (recall === null || this.#fd === null) return false;
    if (recall()) {
      holdFd(this.#fd);
      return false;
    }
    this.giveUp();
    return true;
  }

  /** The borrower owns the connection from now on. */
  giveUp(): void {
    this.#recall = null;
    this.#fd = null;
  }

  /** Closes the connection by a reset (RST); without effect once it is gone. */
  reset(): void {
    this.recall();
    if (this.#fd !== null) resetHeld(this.#fd);
    else if (this.#socket !== null) resetSocket(this.#socket);
    this.#fd = null;
  }

  /** Gives the connection to a Node socket, half-open and paused. It is a closed one if the connection is gone. */
  adopt(): Socket {
    this.recall();
    if (this.#socket === null) {
      const fd = this.#fd;
      this.#fd = null;
      this.#socket = fd === null ? new Socket().destroy() : adoptHeld(fd);
    }
    const { first } = this;
    this.first = null;
    if (first !== null) this.#socket.write(first);
    return this.#socket;
  }

  /**
   * Takes the connection out of JavaScript. Throws UPSTREAM_CONNECT if it may not leave, and NATIVE_SYSCALL when no descriptor is free; it
   * then stays as it is.
   */
  take(): Detached {
    this.recall();
    if (!this.mayLeave) {
      throw new MeshError('UPSTREAM_CONNECT', 'the connection is gone or in use');
    }
    return this.#leave(this.#reserve());
  }

  /** Takes both out of JavaScript; null, with both as they are, if one cannot leave. */
  static takeBoth(
    a: RawSocket,
    b: RawSocket,
  ): { readonly a: Detached; readonly b: Detached } | null {
    for (const one of [a, b]) one.recall();
    if (!a.mayLeave || !b.mayLeave) return null;
    let first: number | null = null;
    try {
      first = a.#reserve();
      const second = b.#reserve();
      return { a: a.#leave(first), b: b.#leave(second) };
    } catch (error) {
      if (first !== null && first !== a.#fd) closeFd(first);
      // The caller has another way if the kernel refuses; any other error is a defect.
      if (error instanceof MeshError && error.code === 'NATIVE_SYSCALL') return null;
      throw error;
    }
  }

  /** The descriptor to leave by. A Node socket keeps its own. */
  #reserve(): number {
    return this.#fd ?? duplicateFd(present(this.#openFd, 'an open socket has a descriptor'));
  }

  get #openFd(): number | null {
    return this.#socket === null ? null : socketFd(this.#socket);
  }

  #leave(fd: number): Detached {
    const { first } = this;
    if (fd === this.#fd) {
      this.#fd = null;
      releaseFd(fd);
      return { fd, first, read: null };
    }
    const socket = present(this.#socket, 'it is a descriptor or a socket');
    // The descriptor lives on; errors of the socket that let it go mean nothing.
    socket.on('error', ignore);
    return { fd, first, read: leftBy(socket) };
  }
}

/** Makes a Node socket of a held descriptor. If that fails, the connection is closed. */
function adoptHeld(fd: number): Socket {
  try {
    const socket = adoptSocket(fd);
    releaseFd(fd);
    // Stays attached: an error before somebody listens must not end the process.
    socket.on('error', ignore);
    return socket;
  } catch (error) {
    resetHeld(fd);
    throw error;
  }
}

/**
 * Takes the bytes read so far and destroys the socket. The peer does not notice, since the connection has another descriptor. All
 * happens in one turn, so that the loop reads nothing meanwhile.
 */
function leftBy(socket: Socket): Buffer | null {
  const chunks: Buffer[] = [];
  while (socket.readableLength > 0) {
    const chunk = socket.read() as Buffer | null;
    if (chunk === null) break;
    chunks.push(chunk);
  }
  socket.destroy();
  return chunks.length === 0 ? null : Buffer.concat(chunks);
}

function ignore(): void {}

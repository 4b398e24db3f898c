import { assert } from '../errors/assert.ts';
import { closeFd, netnsIdentity, openNetns } from './netns.ts';
import type { NetnsIdentity } from './netns.ts';

/**
 * A shared descriptor of a network namespace. Each user holds a reference, so that the number cannot name another file while a
 * message with it waits. Starts with one reference.
 */
export class NetnsHandle {
  readonly fd: number;
  readonly identity: NetnsIdentity;
  #references = 1;

  /** Takes ownership of `fd`. */
  constructor(fd: number) {
    this.fd = fd;
    this.identity = netnsIdentity(fd);
  }

  /** Opens the namespace at `path`. Throws NATIVE_SYSCALL when there is none. */
  static open(path: string): NetnsHandle {
    return new NetnsHandle(openNetns(path));
  }

  /** Adds a reference; return it with {@link release}. */
  retain(): this {
    assert(this.#references > 0, 'a closed namespace handle is not used again');
    this.#references += 1;
    return this;
  }

  /** Returns a reference; the last one closes the descriptor. */
  release(): void {
    assert(this.#references > 0, 'a namespace handle is released once per reference');
    this.#references -= 1;
    if (this.#references === 0) closeFd(this.fd);
  }
}

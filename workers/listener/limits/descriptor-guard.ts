import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { isExhausted } from '../../../lib/linux/errno.ts';
import { closeFd } from '../../../lib/linux/netns.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { DESCRIPTOR_LINE_MS, MAX_DESCRIPTOR_MARGIN } from '../limits.ts';

/**
 * Keeps a thread from taking the last descriptors of the process. Without one, a listening socket can neither be served nor
 * silenced: libuv sheds what waits at it without a word, and spins when it cannot even do that.
 */
export class DescriptorGuard {
  readonly #limit: number;
  readonly #deps: { readonly clock: Clock; readonly log: Pick<Logger, 'error' | 'info'> };
  readonly #margin: number;
  #exhausted = false;
  #toldMs = -Infinity;

  /** `limit` is the number of descriptors the process may have. */
  constructor(
    limit: number,
    deps: { readonly clock: Clock; readonly log: Pick<Logger, 'error' | 'info'> },
  ) {
    this.#limit = limit;
    this.#deps = deps;
    this.#margin = Math.min(MAX_DESCRIPTOR_MARGIN, Math.ceil(limit / 4));
  }

  /**
   * Whether an accepted connection may be kept. The system gives out the lowest number that is free, so a high one says that
   * nearly all are in use.
   */
  admits(fd: number): boolean {
    const left = this.#limit - fd;
    if (left <= this.#margin) {
      this.#tell({ left }, 'accepted');
      return false;
    }
    if (this.#exhausted && left > 2 * this.#margin) {
      this.#exhausted = false;
      this.#toldMs = -Infinity;
      this.#deps.log.info({ limit: this.#limit }, 'descriptors.available');
    }
    return true;
  }

  /**
   * Whether a socket that was made for a connection may be used: what was accepted before may go some way further, but the very
   * last ones are for what is no connection.
   */
  spares(fd: number): boolean {
    const left = this.#limit - fd;
    if (left > this.#margin / 2) return true;
    this.#tell({ left }, 'made');
    return false;
  }

  /**
   * A descriptor that `open` makes for a connection or a query; closed again when it would be one of the very last. Throws what
   * `open` throws, and NATIVE_SYSCALL with EMFILE.
   */
  make(open: () => number): number {
    let fd: number;
    try {
      fd = open();
    } catch (error) {
      this.note(error);
      throw error;
    }
    if (this.spares(fd)) return fd;
    closeFd(fd);
    throw new MeshError('NATIVE_SYSCALL', 'no descriptor is to be had for the connection', {
      detail: { call: 'socket', errno: 'EMFILE' },
    });
  }

  /** Logs a call that failed because no descriptor was left. Has no effect for any other failure. */
  note(error: unknown): void {
    if (isExhausted(error)) this.#tell({ error: errorText(error) }, 'made');
  }

  #tell(fields: Readonly<Record<string, unknown>>, refused: 'accepted' | 'made'): void {
    this.#exhausted = true;
    const nowMs = this.#deps.clock.monotonic();
    if (nowMs - this.#toldMs < DESCRIPTOR_LINE_MS) return;
    this.#toldMs = nowMs;
    this.#deps.log.error(
      { limit: this.#limit, ...fields, hint: `no connection is ${refused} until others end` },
      'descriptors.exhausted',
    );
  }
}

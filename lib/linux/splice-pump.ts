/**
 * Joins two TCP sockets in the kernel (addon/splice-*.cc): bytes go from one to the other through a pipe, on a thread of
 * the process that all its JavaScript threads share, and none of them passes through JavaScript.
 */
import { MeshError } from '../errors/mesh-error.ts';
import { callNative } from './native.ts';
import type { PumpHandle, PumpStats } from './native.ts';

export type { PumpStats } from './native.ts';

/** One of two connected TCP sockets. */
export interface SpliceEnd {
  readonly fd: number;
  /** Goes out on it before anything the other one says; not counted. */
  readonly first?: Buffer | null;
  /** What was read from it already; goes to the other one before the rest, and is counted. */
  readonly read?: Buffer | null;
}

/** Bytes so far. */
export interface SpliceCounts {
  /** From `a` to `b`. */
  readonly fromA: number;
  readonly fromB: number;
  /** When the first byte came from `b`, by this thread's performance.now(); unset before that. */
  readonly firstFromBMs?: number;
}

/** Two joined sockets. */
export interface Splice {
  /** Valid in every thread of the process, for {@link countSplice} and {@link abortSplice}. */
  readonly id: number;
  /** As of now; the last ones once it has ended. */
  readonly counts: SpliceCounts;
  /**
   * Resolves when both sockets are closed; `error` is UPSTREAM_CONNECT when one failed other than by closing, TUNNEL_RESET when another
   * thread has aborted the splice.
   */
  readonly done: Promise<{ readonly error: MeshError | null }>;
  /** Resets both sockets at once. */
  abort(): void;
}

const NO_BYTES: SpliceCounts = { fromA: 0, fromB: 0 };

/** Those that this thread has started and whose end it has not been told of. */
const running = new Map<number, RunningSplice>();
let handle: PumpHandle | null = null;

/**
 * Joins two connected TCP sockets, which belong to the pump from now on: no other descriptor of them may be read or
 * written. Half-close and failures pass as docs/spec/dataplane.md §10 says. Throws NATIVE_SYSCALL, and then the caller
 * still owns both.
 */
export function splicePump(a: SpliceEnd, b: SpliceEnd): Splice {
  const id = callNative((native) => {
    handle ??= native.pumpOpen(ended);
    const first = [a.first ?? null, b.first ?? null] as const;
    return native.pumpStart(handle, a.fd, b.fd, ...first, a.read ?? null, b.read ?? null);
  });
  const splice = new RunningSplice(id);
  running.set(id, splice);
  return splice;
}

/** Bytes so far of a splice that any thread started; null when it has ended. */
export function countSplice(id: number): SpliceCounts | null {
  const found = callNative((native) => native.pumpCounts(id));
  return found === null ? null : spliceCounts(found.fromA, found.fromB, found.firstFromBAgoMs);
}

/** Aborts a splice that any thread started; without effect when it has ended. */
export function abortSplice(id: number): void {
  callNative((native) => native.pumpAbort(id));
}

/** Splices that this thread started and that have not ended. */
export function runningSplices(): number {
  return running.size;
}

/** What the process has joined and holds. */
export function pumpStats(): PumpStats {
  return callNative((native) => native.pumpStats());
}

/**
 * Bounds the pump of this process: pipes in use at once (two descriptors each; beyond them bytes take the way through user
 * space), and the capacity asked for of each, which the kernel may round or refuse.
 */
export function limitPump(limits: { readonly maxPipes: number; readonly pipeBytes: number }): void {
  callNative((native) => native.pumpLimit(limits.maxPipes, limits.pipeBytes));
}

/** Another descriptor of the same open file, close-on-exec, owned by the caller. NATIVE_SYSCALL. */
export function duplicateFd(fd: number): number {
  return callNative((native) => native.duplicateFd(fd));
}

class RunningSplice implements Splice {
  readonly id: number;
  readonly done: Promise<{ readonly error: MeshError | null }>;
  readonly #resolve: (result: { readonly error: MeshError | null }) => void;
  #last: SpliceCounts = NO_BYTES;
  #aborted = false;

  constructor(id: number) {
    this.id = id;
    const { promise, resolve } = Promise.withResolvers<{ readonly error: MeshError | null }>();
    this.done = promise;
    this.#resolve = resolve;
  }

  get counts(): SpliceCounts {
    // Between the end and the news of it the pump knows nothing any more, and neither do we for a moment.
    if (running.has(this.id)) this.#last = countSplice(this.id) ?? this.#last;
    return this.#last;
  }

  abort(): void {
    this.#aborted = true;
    if (running.has(this.id)) abortSplice(this.id);
  }

  end(counts: SpliceCounts, error: MeshError | null): void {
    this.#last = counts;
    this.#resolve({ error: this.#aborted ? null : error });
  }
}

function ended(
  id: number,
  fromA: number,
  fromB: number,
  errno: string | null,
  firstFromBAgoMs: number | null,
): void {
  const splice = running.get(id);
  running.delete(id);
  const counts = spliceCounts(fromA, fromB, firstFromBAgoMs);
  splice?.end(counts, errno === null ? null : failure(errno));
}

function spliceCounts(fromA: number, fromB: number, agoMs: number | null): SpliceCounts {
  return agoMs === null
    ? { fromA, fromB }
    : { fromA, fromB, firstFromBMs: performance.now() - agoMs };
}

function failure(errno: string): MeshError {
  if (errno === 'ECANCELED') return new MeshError('TUNNEL_RESET', 'the peer cut the connection');
  return new MeshError('UPSTREAM_CONNECT', `the connection failed: ${errno}`, {
    detail: { errno },
  });
}

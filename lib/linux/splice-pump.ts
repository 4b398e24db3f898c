/**
 * Joins two TCP sockets in the kernel (addon/splice-*.cc). One thread of the process moves the bytes through a pipe for all
 * JavaScript threads; no byte passes through JavaScript.
 */
import { ById } from '../collections/by-id.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { callNative } from './native.ts';
import type { PumpHandle, PumpStats } from './native.ts';

export type { PumpStats } from './native.ts';

/** One of two connected TCP sockets. */
export interface SpliceEnd {
  readonly fd: number;
  /** Sent on this socket before any bytes of the other one; not counted. */
  readonly first?: Buffer | null;
  /** Bytes already read from this socket; they go to the other one before the rest, and count. */
  readonly read?: Buffer | null;
}

/** Bytes moved so far. */
export interface SpliceCounts {
  /** From `a` to `b`. */
  readonly fromA: number;
  readonly fromB: number;
  /** Time of the first byte from `b`, by this thread's performance.now(); unset before. */
  readonly firstFromBMs?: number;
}

/** Two joined sockets. */
export interface Splice {
  /** Valid in every thread of the process, for {@link countSplice} and {@link abortSplice}. */
  readonly id: number;
  /** The present counts; the last ones after the end. */
  readonly counts: SpliceCounts;
  /**
   * Resolves when both sockets are closed. `error` is UPSTREAM_CONNECT when one failed other than by closing, TUNNEL_RESET when
   * another thread has aborted the splice.
   */
  readonly done: Promise<{ readonly error: MeshError | null }>;
  /** Resets both sockets at once. */
  abort(): void;
}

const NO_BYTES: SpliceCounts = { fromA: 0, fromB: 0 };

/** Splices of this thread that have not ended yet. */
const running = new ById<RunningSplice>();
let handle: PumpHandle | null = null;

/**
 * Joins two connected TCP sockets. The pump owns them from now on; no other descriptor of them may be read or written.
 * Half-close and failures pass as docs/spec/dataplane.md §10 says. If it throws NATIVE_SYSCALL, the caller still owns both.
 */
export function splicePump(a: SpliceEnd, b: SpliceEnd): Splice {
  const id = callNative((native) => {
    handle ??= native.pumpOpen(ended);
    const first = [a.first ?? null, b.first ?? null] as const;
    return native.pumpStart(handle, a.fd, b.fd, ...first, a.read ?? null, b.read ?? null);
  });
  const splice = new RunningSplice(id);
  running.add(splice);
  return splice;
}

/** Returns the bytes so far of a splice of any thread; null when it has ended. */
export function countSplice(id: number): SpliceCounts | null {
  const found = callNative((native) => native.pumpCounts(id));
  return found === null ? null : spliceCounts(found.fromA, found.fromB, found.firstFromBAgoMs);
}

/** Aborts a splice of any thread; does nothing when it has ended. */
export function abortSplice(id: number): void {
  callNative((native) => native.pumpAbort(id));
}

/** Counts the splices of this thread that have not ended. */
export function runningSplices(): number {
  return running.size;
}

/** Returns the pump's counters for the whole process. */
export function pumpStats(): PumpStats {
  return callNative((native) => native.pumpStats());
}

/**
 * Bounds the pump of this process: the pipes in use at once (two descriptors each; without a pipe, bytes go through user space),
 * and their requested capacity, which the kernel may round or refuse.
 */
export function limitPump(limits: { readonly maxPipes: number; readonly pipeBytes: number }): void {
  callNative((native) => native.pumpLimit(limits.maxPipes, limits.pipeBytes));
}

/** Duplicates a descriptor, close-on-exec; the caller owns the new one. Throws NATIVE_SYSCALL. */
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
    // Between the end and its event the pump no longer has the counts.
    if (running.get(this.id) !== undefined) this.#last = countSplice(this.id) ?? this.#last;
    return this.#last;
  }

  abort(): void {
    this.#aborted = true;
    if (running.get(this.id) !== undefined) abortSplice(this.id);
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
  const splice = running.delete(id);
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

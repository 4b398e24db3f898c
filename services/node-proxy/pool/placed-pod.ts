import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { PodInfo } from '../../../workers/listener/protocol/control.ts';

/** Tells the thread to stop the pod. */
type StopSender = (mode: 'immediate' | 'graceful', deadlineMs: number) => void;

/**
 * A pod on a thread, from its placement to the end of its task. `listening` settles once. `ended` always resolves: with null
 * after a requested stop, else with the error.
 */
export class PlacedPod {
  readonly info: PodInfo;
  readonly thread: number;
  readonly listening: Promise<void>;
  readonly ended: Promise<MeshError | null>;
  readonly #stop: StopSender;
  readonly #listening = Promise.withResolvers<void>();
  readonly #ended = Promise.withResolvers<MeshError | null>();
  #over = false;
  #stopAsked = false;
  #failure: MeshError | null = null;

  constructor(info: PodInfo, thread: number, stop: StopSender) {
    this.info = info;
    this.thread = thread;
    this.#stop = stop;
    this.listening = this.#listening.promise;
    this.ended = this.#ended.promise;
    // The caller may have given up waiting for `listening` by the time it fails.
    this.listening.catch(() => undefined);
  }

  /** True after the task ended. */
  get over(): boolean {
    return this.#over;
  }

  /** Asks the thread to stop the pod; an immediate stop may follow a graceful one. */
  stop(mode: 'immediate' | 'graceful', deadlineMs: number): void {
    this.#stopAsked = true;
    if (!this.#over) this.#stop(mode, deadlineMs);
  }

  /** The thread reports that all listeners listen. */
  markListening(): void {
    this.#listening.resolve();
  }

  /** The thread reports that it could not start the pod, or lost it. Stops the rest of it. */
  markFailed(error: MeshError): void {
    this.#failure ??= error;
    this.#listening.reject(error);
    this.#stop('immediate', 0);
  }

  /** The task ended, with an error or without. Idempotent. */
  end(taskError: MeshError | null): void {
    if (this.#over) return;
    this.#over = true;
    const error = this.#failure ?? taskError ?? (this.#stopAsked ? null : unexpectedEnd());
    this.#listening.reject(error ?? new MeshError('ACTOR_FAILED', 'the pod was stopped'));
    this.#ended.resolve(error);
  }
}

function unexpectedEnd(): MeshError {
  return new MeshError('ACTOR_FAILED', 'the listener task ended without being told to');
}

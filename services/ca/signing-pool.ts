import type { Piscina } from 'piscina';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { programPath } from '../../lib/files/installation.ts';
import type { SigningOutcome, SigningTask } from '../../workers/signing/protocol/task.ts';
import {
  MAX_CONCURRENT_REQUESTS,
  SIGNERS_MAX,
  SIGNER_IDLE_MS,
  TASKS_PER_SIGNER,
} from './limits.ts';

/** An issued certificate and what its request reported. */
export type Issued = Extract<SigningOutcome, { ok: true }>;

/** Issues certificates. */
export interface Signer {
  /**
   * Throws IDENTITY_INVALID for an unusable request, STATE_UNAVAILABLE when no thread can take the task, IDENTITY_UNAVAILABLE
   * when signing fails.
   */
  sign(task: SigningTask): Promise<Issued>;
}

/**
 * Issues certificates in threads, so that signing keeps no caller from an answer. They exist only while they have work: one takes
 * 8 MB, and its start adds a tenth of a second to the first request after a while.
 */
export class SigningPool implements Signer {
  readonly #pool: Promise<Piscina>;
  #closed = false;

  constructor(threads: number) {
    this.#pool = startPool(threads);
    // Requests and the close report the failure.
    this.#pool.catch(() => undefined);
  }

  async sign(task: SigningTask): Promise<Issued> {
    if (this.#closed) throw new MeshError('STATE_UNAVAILABLE', 'the CA ends');
    const pool = await this.#pool;
    let outcome: SigningOutcome;
    try {
      outcome = (await pool.run(task)) as SigningOutcome;
    } catch (error) {
      throw new MeshError('STATE_UNAVAILABLE', 'no thread can sign', { cause: error });
    }
    if (outcome.ok) return outcome;
    throw MeshError.fromWire(outcome.error);
  }

  /** Ends the threads; tasks under way fail. */
  async close(): Promise<void> {
    this.#closed = true;
    await (await this.#pool).destroy();
  }
}

/** Returns the number of threads that sign on a machine with this many processors: one is left to the requests themselves. */
export function signingThreads(processors: number): number {
  return Math.max(1, Math.min(SIGNERS_MAX, processors - 1));
}

/** Loads piscina beside the rest of the start, so that the first request does not wait for it. */
async function startPool(threads: number): Promise<Piscina> {
  const { Piscina: Pool } = await import('piscina');
  return new Pool({
    filename: programPath('workers/signing/signing.worker.ts'),
    minThreads: 0,
    maxThreads: threads,
    concurrentTasksPerWorker: TASKS_PER_SIGNER,
    maxQueue: MAX_CONCURRENT_REQUESTS,
    idleTimeout: SIGNER_IDLE_MS,
    recordTiming: false,
  });
}

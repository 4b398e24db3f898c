/** Certificate signing over the bus: the node's `sign` queue out, the `signed` board back. */
import { createHash } from 'node:crypto';
import { SIGN_PRIORITY } from '../../lib/bus/catalog.ts';
import type { SignBody, Signed } from '../../lib/bus/catalog.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { ResultBoard } from '../../lib/bus/result-board.ts';
import type { WorkQueue } from '../../lib/bus/work-queue.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError, asMeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { SigningPort, Urgency } from '../../lib/identity/signing-port.ts';
import type { Logger } from '../../lib/log/logger.ts';

/** Collaborators of {@link BusSigning}. */
export interface BusSigningDeps {
  readonly queue: Pick<WorkQueue<SignBody>, 'add' | 'restart' | 'setPriority' | 'remove'>;
  readonly board: Pick<ResultBoard<Signed>, 'wait'>;
  readonly bus: Pick<Bus, 'onConnection'>;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'warn'>;
}

/** A job without an answer is added again after this time: Redis may have lost it, and adding is idempotent. */
const WAIT_MS = 15_000;

/** Time between looks for a result that differs from the failure already seen. */
const NEXT_RESULT_MS = 500;

/** Time between attempts to reach Redis; one costs a look at the connection's state. */
const BUS_RETRY_MS = 250;

/** The first requests come before Redis is connected, and a restart of Redis takes this long: not reported. */
const BUS_GRACE_MS = 2_000;

/** Time from the return of Redis to the return of the queue's own connection. */
const RECONNECTED_MS = 500;

/** A request that waits for its answer. */
interface Pending {
  readonly id: string;
  readonly body: SignBody;
  urgency: Urgency;
}

/**
 * Gets certificates signed by the node's fetcher. The queue retries. A request waits, also while Redis or the fetcher is
 * away, until there is an answer or the failure is final.
 */
export class BusSigning implements SigningPort {
  readonly #process: string;
  readonly #deps: BusSigningDeps;
  readonly #pending = new Map<string, Pending>();

  /** `process` names this run of the process. */
  constructor(process: string, deps: BusSigningDeps) {
    this.#process = process;
    this.#deps = deps;
    deps.bus.onConnection((connected) => {
      if (connected) deps.clock.after(RECONNECTED_MS, () => this.#addAgain());
    });
  }

  async request(
    identity: string,
    csrPem: string,
    urgency: Urgency,
    options: { readonly signal: AbortSignal; readonly onFailure: (error: MeshError) => void },
  ): Promise<readonly string[]> {
    const body = { process: this.#process, identity, csr: csrPem };
    const pending: Pending = { id: jobId(this.#process, identity, csrPem), body, urgency };
    this.#pending.set(identity, pending);
    try {
      return await this.#waitForAnswer(pending, options);
    } finally {
      if (this.#pending.get(identity) === pending) this.#pending.delete(identity);
      if (options.signal.aborted) this.#remove(pending.id);
    }
  }

  raise(identity: string, urgency: Urgency): void {
    const pending = this.#pending.get(identity);
    if (pending === undefined) return;
    pending.urgency = urgency;
    this.#deps.queue.setPriority(pending.id, SIGN_PRIORITY[urgency]).catch((error: unknown) => {
      // The job is added again with the new urgency when the wait is over.
      this.#deps.log.debug({ identity, problem: errorText(error) }, 'signing-job.raise-failed');
    });
  }

  hasten(identity: string): void {
    const pending = this.#pending.get(identity);
    // Without Redis the job is added again when it is back.
    if (pending !== undefined) this.#addOnceMore(pending, 'restart');
  }

  async #waitForAnswer(
    pending: Pending,
    options: { readonly signal: AbortSignal; readonly onFailure: (error: MeshError) => void },
  ): Promise<readonly string[]> {
    const { signal, onFailure } = options;
    const { clock } = this.#deps;
    let seen: string | null = null;
    const reportOnce = (error: MeshError): void => {
      const { attempt = '', at = '' } = error.detail;
      const mark = `${error.code} ${error.message} ${attempt} ${at}`;
      if (mark === seen) return;
      seen = mark;
      onFailure(error);
    };
    let addedAt = -Infinity;
    let busLostAt: number | null = null;
    let busLossTold = false;
    for (;;) {
      signal.throwIfAborted();
      try {
        if (clock.monotonic() - addedAt >= WAIT_MS) {
          await this.#add(pending);
          addedAt = clock.monotonic();
          busLostAt = null;
          busLossTold = false;
        }
        const result = await this.#deps.board.wait(pending.id, WAIT_MS, signal);
        if (result?.ok === true) return result.chain;
        if (result !== null) {
          const error = MeshError.fromWire(result.error);
          if (result.final) throw new FinalFailure(error);
          reportOnce(error);
          await clock.sleep(NEXT_RESULT_MS, signal);
        }
      } catch (error) {
        if (error instanceof FinalFailure) throw error.failure;
        signal.throwIfAborted();
        busLostAt ??= clock.monotonic();
        if (!busLossTold && clock.monotonic() - busLostAt >= BUS_GRACE_MS) {
          busLossTold = true;
          onFailure(
            asMeshError(error, 'BUS_UNAVAILABLE', 'the certificate request cannot be queued'),
          );
        }
        await clock.sleep(BUS_RETRY_MS, signal);
      }
    }
  }

  async #add(pending: Pending, way: 'add' | 'restart' = 'add'): Promise<void> {
    const priority = SIGN_PRIORITY[pending.urgency];
    await this.#deps.queue[way](pending.id, pending.body, { priority });
  }

  /** Adds all jobs again: Redis may have come back without its data. */
  #addAgain(): void {
    for (const pending of this.#pending.values()) this.#addOnceMore(pending, 'add');
  }

  #addOnceMore(pending: Pending, way: 'add' | 'restart'): void {
    this.#add(pending, way).then(
      () => {
        // The request ended meanwhile, and its removal may have come before the job.
        if (this.#pending.get(pending.body.identity) !== pending) this.#remove(pending.id);
      },
      (error: unknown) => {
        // The job is added again when the wait is over.
        const fields = { id: pending.id, problem: errorText(error) };
        this.#deps.log.debug(fields, 'signing-job.add-failed');
      },
    );
  }

  #remove(id: string): void {
    this.#deps.queue.remove(id).catch((error: unknown) => {
      // The job will be signed in vain; its answer expires.
      this.#deps.log.debug({ id, problem: errorText(error) }, 'signing-job.remove-failed');
    });
  }
}

/** Carries a final answer past the handler of the bus's own failures. */
class FinalFailure extends Error {
  readonly failure: MeshError;

  constructor(failure: MeshError) {
    super(failure.message);
    this.failure = failure;
  }
}

/** Names the job by process, identity and key, so that the same request is always the same job. */
export function jobId(process: string, identity: string, csrPem: string): string {
  return `${process}.${shortHash(identity)}.${shortHash(csrPem)}`;
}

function shortHash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

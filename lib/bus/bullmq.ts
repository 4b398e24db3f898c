/**
 * BullMQ, by parts and when they are first used. An actor that adds or takes no jobs loads none of it, and nobody loads its
 * other databases and clients: the whole package takes ten megabytes of memory.
 */
import type { Queue, UnrecoverableError, Worker } from 'bullmq';

/** What consumers of jobs need. */
export interface ConsumerParts {
  readonly Worker: typeof Worker;
  readonly UnrecoverableError: typeof UnrecoverableError;
}

/** The class that adds jobs. Rejects when the package cannot be read. */
export async function loadQueue(): Promise<typeof Queue> {
  return (await import('bullmq/dist/cjs/classes/queue.js')).Queue;
}

/** The classes that take jobs. Rejects likewise. */
export async function loadConsumer(): Promise<ConsumerParts> {
  const [{ Worker: WorkerClass }, { UnrecoverableError: ErrorClass }] = await Promise.all([
    import('bullmq/dist/cjs/classes/worker.js'),
    import('bullmq/dist/cjs/classes/errors/unrecoverable-error.js'),
  ]);
  return { Worker: WorkerClass, UnrecoverableError: ErrorClass };
}

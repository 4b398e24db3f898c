/**
 * Loads parts of BullMQ when they are first used. The whole package takes ten megabytes of memory: an actor without jobs loads
 * none of it, and no actor loads its other databases and clients.
 */
import type { Queue, UnrecoverableError, Worker } from 'bullmq';

/** The classes that take jobs. */
export interface ConsumerParts {
  readonly Worker: typeof Worker;
  readonly UnrecoverableError: typeof UnrecoverableError;
}

/**
 * Keeps queues and workers from asking for Redis' version when they are made. BullMQ asks once: where Redis goes away in that moment,
 * the queue or worker fails until the process ends. Without the version a worker's waits are whole seconds.
 */
export const NO_FIRST_COMMAND = { skipVersionCheck: true } as const;

/** Loads the class that adds jobs. Rejects when the package cannot be read. */
export async function loadQueue(): Promise<typeof Queue> {
  return (await import('./bullmq-queue.ts')).Queue;
}

/** Loads the classes that take jobs. Rejects when the package cannot be read. */
export function loadConsumer(): Promise<ConsumerParts> {
  return import('./bullmq-consumer.ts');
}

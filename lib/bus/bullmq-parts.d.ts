/** The parts of BullMQ that are loaded by themselves; the published types know the package's entry alone. */
declare module 'bullmq/dist/cjs/classes/queue.js' {
  export { Queue } from 'bullmq';
}

declare module 'bullmq/dist/cjs/classes/worker.js' {
  export { Worker } from 'bullmq';
}

declare module 'bullmq/dist/cjs/classes/errors/unrecoverable-error.js' {
  export { UnrecoverableError } from 'bullmq';
}

/** Types of the parts of BullMQ that are loaded separately; the published types describe only the package's entry. */
declare module 'bullmq/dist/cjs/classes/queue.js' {
  export { Queue } from 'bullmq';
}

declare module 'bullmq/dist/cjs/classes/worker.js' {
  export { Worker } from 'bullmq';
}

declare module 'bullmq/dist/cjs/classes/errors/unrecoverable-error.js' {
  export { UnrecoverableError } from 'bullmq';
}

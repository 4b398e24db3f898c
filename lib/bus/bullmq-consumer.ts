/** The classes of BullMQ that take jobs, apart from the rest of the package (bullmq.ts). */
export { Worker } from 'bullmq/dist/cjs/classes/worker.js';
export { UnrecoverableError } from 'bullmq/dist/cjs/classes/errors/unrecoverable-error.js';

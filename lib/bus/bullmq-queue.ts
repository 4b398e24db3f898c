/** The class of BullMQ that adds jobs, apart from the rest of the package (bullmq.ts). */
export { Queue } from 'bullmq/dist/cjs/classes/queue.js';

/** A thread that joins two descriptors by the splice pump, reports it, and waits to be terminated. */
import { parentPort, workerData } from 'node:worker_threads';
import { splicePump } from '../../lib/linux/splice-pump.ts';

const { a, b } = workerData as { readonly a: number; readonly b: number };
const splice = splicePump({ fd: a }, { fd: b });
parentPort?.postMessage(splice.id);

/** Entry of the state thread: holds the mesh state of the process and does nothing else. */
import { parentPort, workerData } from 'node:worker_threads';
import type { StateSettings } from './protocol.ts';
import { serveState } from './state-service.ts';

// Without a parent it is only loaded, for the compile cache.
if (parentPort !== null) {
  serveState(workerData as StateSettings, parentPort, (error) => {
    // Uncaught, which ends the thread and tells the process why.
    throw error;
  });
}

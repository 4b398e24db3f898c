/** Entry of the state thread, which holds the mesh state of the process and does nothing else. */
import { parentPort, workerData } from 'node:worker_threads';
import type { StateSettings } from './protocol.ts';
import { StateService } from './state-service.ts';

// Without a parent the file is only loaded, for the compile cache.
if (parentPort !== null) {
  new StateService(workerData as StateSettings, parentPort, (error) => {
    // Uncaught: it ends the thread and tells the process why.
    throw error;
  }).start();
}

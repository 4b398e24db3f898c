/** Entry of the state thread, which holds the mesh state of the process and does nothing else. */
import { parentPort, workerData } from 'node:worker_threads';
import { present } from '../../../lib/errors/assert.ts';
import type { StateSettings } from './protocol.ts';
import { StateService } from './state-service.ts';

new StateService(workerData as StateSettings, present(parentPort, 'runs as a thread'), (error) => {
  // Uncaught: it ends the thread and tells the process why.
  throw error;
}).start();

/** Entry of the state thread: holds the mesh state of the process and does nothing else. */
import { parentPort, workerData } from 'node:worker_threads';
import { present } from '../../../lib/errors/assert.ts';
import type { StateSettings } from './protocol.ts';
import { serveState } from './state-service.ts';

serveState(
  workerData as StateSettings,
  present(parentPort, 'the state thread has a parent'),
  (error) => {
    // Uncaught, which ends the thread and tells the process why.
    throw error;
  },
);

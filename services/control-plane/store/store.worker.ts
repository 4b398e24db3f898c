/** Entry of the store's thread, which owns the store's file. */
import { parentPort, workerData } from 'node:worker_threads';
import { present } from '../../../lib/errors/assert.ts';
import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import { StoreFile } from './store-file.ts';
import type { StoreReply, StoreRequest } from './store-thread.ts';

const port = present(parentPort, 'runs as a thread');
let file: StoreFile | null = null;
const answer = (work: () => unknown): void => {
  let reply: StoreReply;
  try {
    reply = { value: work() };
  } catch (error) {
    reply = { error: asMeshError(error, 'STATE_UNAVAILABLE').toWire() };
  }
  port.postMessage(reply);
};
answer(() => {
  file = new StoreFile(workerData as string);
  return file.dropped;
});
port.on('message', (request: StoreRequest) =>
  answer(() => {
    switch (request.type) {
      case 'read':
        return file?.read(request.after);
      case 'write':
        return file?.write(request.rows, request.first, request.last);
      case 'close':
        file?.close();
        file = null;
    }
  }),
);

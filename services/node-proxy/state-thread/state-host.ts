/** Runs the mesh state in a thread of its own, or on the thread of the caller. */
import { once } from 'node:events';
import { MessageChannel, Worker } from 'node:worker_threads';
import type { Transferable } from 'node:worker_threads';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { programPath } from '../../../lib/files/installation.ts';
import { YOUNG_GENERATION_MB } from '../limits.ts';
import type { FromStateThread, StateSettings, ToStateThread } from './protocol.ts';

/** A running mesh state, as its caller sees it. */
export interface StateHost {
  post(message: ToStateThread, transfer: Transferable[]): void;
  /** Ends the mesh state, which sends no message after this call. */
  end(): Promise<void>;
}

/** Events of the mesh state. */
export interface StateHostEvents {
  receive(message: FromStateThread): void;
  /** The mesh state is gone or wrong. */
  lost(why: string): void;
}

/** Runs the mesh state in its own thread, so that lookups and traffic do not wait for the rest of the process. */
export function ownThread(settings: StateSettings, events: StateHostEvents): StateHost {
  const worker = new Worker(programPath('services/node-proxy/state-thread/state.worker.ts'), {
    workerData: settings,
    name: 'state',
    resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB },
  });
  worker.on('message', (message: FromStateThread) => events.receive(message));
  worker.on('error', (error) => events.lost(errorText(error)));
  worker.on('exit', (code) => events.lost(`exit code ${code}`));
  return {
    post: (message, transfer) => worker.postMessage(message, transfer),
    end: async () => void (await worker.terminate()),
  };
}

/**
 * Runs the mesh state on the caller's thread, which saves an isolate with its copy of the code. Lookups wait for other work of
 * the thread, a millisecond as a rule. Long work on the state is cut into slices here, too.
 */
export function callersThread(settings: StateSettings, events: StateHostEvents): StateHost {
  const { port1, port2 } = new MessageChannel();
  const lost = (error: unknown): void => {
    port1.close();
    events.lost(errorText(error));
  };
  port1.on('message', (message: FromStateThread) => events.receive(message));
  const serving = import('./state-service.ts').then(({ StateService }) =>
    new StateService(settings, port2, lost).start(),
  );
  serving.catch(lost);
  return {
    post: (message, transfer) => port1.postMessage(message, transfer),
    end: async () => {
      port1.removeAllListeners('message');
      const closed = once(port1, 'close');
      await serving.then(
        () => port1.postMessage({ type: 'stop' } satisfies ToStateThread),
        () => port1.close(),
      );
      await closed;
    },
  };
}

/** Where the mesh state lives: in a thread of its own, or on the thread of the caller. */
import { once } from 'node:events';
import { MessageChannel, Worker } from 'node:worker_threads';
import type { Transferable } from 'node:worker_threads';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { YOUNG_GENERATION_MB } from '../limits.ts';
import type { FromStateThread, StateSettings, ToStateThread } from './protocol.ts';

/** The far end of the conversation with the mesh state. */
export interface StateHost {
  post(message: ToStateThread, transfer: Transferable[]): void;
  /** Ends it; nothing is told any more once this is called. */
  end(): Promise<void>;
}

/** Who listens to it. */
export interface StateHostEvents {
  receive(message: FromStateThread): void;
  /** It is gone or cannot be relied on. */
  lost(why: string): void;
}

/** A thread that does nothing else: neither lookups nor traffic wait for the rest of the process. */
export function ownThread(settings: StateSettings, events: StateHostEvents): StateHost {
  const worker = new Worker(new URL('./state.worker.ts', import.meta.url), {
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
 * The caller's thread, which saves an isolate with its copy of the code. Lookups wait for what else the thread does, a
 * millisecond as a rule; long work on the state is cut into slices here too.
 */
export function callersThread(settings: StateSettings, events: StateHostEvents): StateHost {
  const { port1, port2 } = new MessageChannel();
  const lost = (error: unknown): void => {
    port1.close();
    events.lost(errorText(error));
  };
  port1.on('message', (message: FromStateThread) => events.receive(message));
  const serving = import('./state-service.ts').then(({ serveState }) =>
    serveState(settings, port2, lost),
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

import type { EventEmitter } from 'node:events';

/** Resolves when the emitter emits one of the events; leaves no listener behind. */
export function firstEvent(emitter: EventEmitter, events: readonly string[]): Promise<void> {
  return new Promise((resolve) => {
    const settle = (): void => {
      for (const event of events) emitter.off(event, settle);
      resolve();
    };
    for (const event of events) emitter.on(event, settle);
  });
}

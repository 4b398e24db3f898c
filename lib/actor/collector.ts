import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** V8's own function; `last-resort` also gives back the pages that a collection has emptied in part. */
type Collect = (
  options:
    | { type: 'major'; execution: 'sync'; flavor: 'last-resort' }
    | { type: 'minor'; execution: 'sync' },
) => void;

/** Lets this process collect garbage when it wants to. */
export function allowCollection(): void {
  setFlagsFromString('--expose-gc');
}

/**
 * Collects all garbage of the calling thread, and gives its memory back, after {@link allowCollection}: a main thread's 0.1 to
 * 0.4 s, a listener's tens of milliseconds.
 */
export function collectAll(): void {
  collector()({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}

/** Empties the young generation of the calling thread, after {@link allowCollection}. Takes some milliseconds. */
export function collectYoung(): void {
  collector()({ type: 'minor', execution: 'sync' });
}

/** Contexts made before the permission lack the function, as that of the main thread does. */
function collector(): Collect {
  return (globalThis.gc as Collect | undefined) ?? (runInNewContext('gc') as Collect);
}

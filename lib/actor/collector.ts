import { MeshError } from '../errors/mesh-error.ts';

/** V8's own function; `last-resort` also gives back the pages that a collection has emptied in part. */
type Collect = (
  options:
    | { type: 'major'; execution: 'sync'; flavor: 'last-resort' }
    | { type: 'minor'; execution: 'sync' },
) => void;

/**
 * Collects all garbage of the calling thread, and gives its memory back: 0.1 to 0.4 s of a main thread, tens of milliseconds of
 * a listener's. CONFIG_INVALID in a process without --expose-gc, which the launcher sets: set later, it would differ from what
 * the code in the compile cache was made with.
 */
export function collectAll(): void {
  collector()({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}

/** Empties the young generation of the calling thread, in some milliseconds. Throws like {@link collectAll}. */
export function collectYoung(): void {
  collector()({ type: 'minor', execution: 'sync' });
}

function collector(): Collect {
  const collect = globalThis.gc as Collect | undefined;
  if (collect === undefined) throw new MeshError('CONFIG_INVALID', 'Node runs without --expose-gc');
  return collect;
}

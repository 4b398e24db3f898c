import { MeshError } from '../errors/mesh-error.ts';

/** V8's own function; `last-resort` also returns pages that a collection has emptied in part. */
type Collect = (
  options:
    | { type: 'major'; execution: 'sync'; flavor: 'last-resort' }
    | { type: 'minor'; execution: 'sync' },
) => void;

/**
 * Collects all garbage of the calling thread and returns its memory. A main thread stands still for 0.1 to 0.4 s, a listener
 * thread for tens of milliseconds. Throws CONFIG_INVALID in a process without --expose-gc. The launcher sets that option,
 * because the compile cache does not accept code that was compiled under other options.
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

import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { MeshError } from '../errors/mesh-error.ts';
import { collectInSteps } from '../linux/process.ts';

/** A larger heap is collected in steps: a whole collection would hold the event loop for too long, though it returns more. */
export const MAX_COLLECTED_BYTES = 48 << 20;
/** A still larger heap is left to V8: even the end of a collection in steps would hold the event loop for too long. */
export const MAX_STEPPED_BYTES = 128 << 20;

/** V8's own function; `last-resort` also returns pages that a collection has emptied in part. */
type Collect = (
  options:
    | { type: 'major'; execution: 'sync'; flavor: 'last-resort' }
    | { type: 'minor'; execution: 'sync' },
) => void;

/**
 * V8's options of a collection of an idle thread. Most functions of a start never run again, so it drops the bytecode of what has
 * not run since the collection before. It also empties pages of which little is free: one in twenty bytes instead of one in five.
 * Other collections keep V8's own values: under load they are frequent, and what they dropped would be compiled anew.
 *
 * V8 reads these numbers once for each function or page, so other threads may collect meanwhile. --flush-baseline-code is no such
 * option: V8 ends the process when it changes while another thread collects.
 */
const THOROUGH = [
  '--bytecode-old-age=1',
  '--compaction-target-fragmentation-percent-for-reduce-memory=5',
  `--compaction-max-evacuated-bytes-mb-for-reduce-memory=${MAX_COLLECTED_BYTES >> 20}`,
];
/** V8's defaults. */
const USUAL = [
  '--bytecode-old-age=6',
  '--compaction-target-fragmentation-percent-for-reduce-memory=20',
  '--compaction-max-evacuated-bytes-mb-for-reduce-memory=12',
];

/**
 * Collects all garbage of the calling thread, drops code that no longer runs, and returns the memory. A main thread stands still for 0.1 to 0.4 s, a listener
 * thread for tens of milliseconds. Throws CONFIG_INVALID in a process without --expose-gc, which the launcher sets.
 */
export function collectAll(): void {
  const collect = collector();
  THOROUGH.forEach(setFlagsFromString);
  try {
    collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  } finally {
    USUAL.forEach(setFlagsFromString);
  }
}

/** The ways to collect the calling thread's garbage; tests replace them. */
export interface Collection {
  /** Throws where the thread cannot collect. */
  check(): void;
  /** Returns the size of the heap. */
  heapBytes(): number;
  /** Collects all garbage. */
  collect(): void;
  /** Begins to do so in small steps. */
  collectInSteps(): void;
}

/** The calling thread's own. */
export const OWN_COLLECTION: Collection = {
  check: () => void collector(),
  heapBytes: () => getHeapStatistics().total_heap_size,
  collect: collectAll,
  collectInSteps,
};

/**
 * Collects the garbage of the calling thread as its size allows: at once up to {@link MAX_COLLECTED_BYTES}, in small steps up to
 * {@link MAX_STEPPED_BYTES}, else not at all. Where work must not stand still, `inSteps` leaves the first way out. Throws like
 * {@link collectAll}.
 */
export function collectFitting(by: Collection = OWN_COLLECTION, inSteps = false): void {
  // Also where nothing is collected here: the caller goes on to have other threads collect.
  by.check();
  const bytes = by.heapBytes();
  if (bytes <= MAX_COLLECTED_BYTES && !inSteps) by.collect();
  else if (bytes <= MAX_STEPPED_BYTES) by.collectInSteps();
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

/** Shared parts of the relay programs: their argument, and the joining of two byte streams. */
import type { Duplex } from 'node:stream';

/** One forwarded port. */
export interface Forward {
  readonly listen: number;
  readonly host: string;
  readonly port: number;
}

/** The half of a pair that a program is, and the location of its certificate; its only argument, as JSON. */
export interface RelayOptions {
  readonly side: 'client' | 'server';
  readonly certificateFile: string;
  readonly rootFile: string;
  readonly forwards: readonly Forward[];
}

/** Bytes a stream may hold before its source is paused. */
export const BUFFER_BYTES = 1_048_576;

/** Parses the program's options. */
export function relayOptions(): RelayOptions {
  return JSON.parse(process.argv[2] ?? '{}') as RelayOptions;
}

/** Carries bytes both ways until both have ended. A failure of one ends both. */
export function join(a: Duplex, b: Duplex): void {
  a.pipe(b).pipe(a);
  a.on('error', () => b.destroy());
  b.on('error', () => a.destroy());
}

/** What the relay programs share: their argument, and how two byte streams become one. */
import type { Duplex } from 'node:stream';

/** One forwarded port. */
export interface Forward {
  readonly listen: number;
  readonly host: string;
  readonly port: number;
}

/** Which half of a pair a program is, and where its certificate lies; the only argument, as JSON. */
export interface RelayOptions {
  readonly side: 'client' | 'server';
  readonly certificateFile: string;
  readonly rootFile: string;
  readonly forwards: readonly Forward[];
}

/** Bytes a stream may hold before its source is paused. */
export const BUFFER_BYTES = 1_048_576;

/** The program's options. */
export function relayOptions(): RelayOptions {
  return JSON.parse(process.argv[2] ?? '{}') as RelayOptions;
}

/** Carries bytes both ways until both have ended. A relay has nobody to tell of a failure: it ends both. */
export function join(a: Duplex, b: Duplex): void {
  a.pipe(b).pipe(a);
  a.on('error', () => b.destroy());
  b.on('error', () => a.destroy());
}

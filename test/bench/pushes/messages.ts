/** Messages between the benchmark of pushes and its server, which runs in a process of its own. */

import type { LongestTurns } from '../lib/turns.ts';

/** A command; the server answers each with one {@link ServerReport}. */
export type ServerCommand =
  /** Serves this many workloads, and a service for every twenty. */
  | { readonly do: 'load'; readonly workloads: number }
  /** Gives every resource another content, and serves this many workloads from the next push on. */
  | { readonly do: 'change-all'; readonly workloads: number }
  /** Pushes what changed, and forgets the longest turn and the largest memory before it. */
  | { readonly do: 'push' }
  /** Changes the probe, which tells when it was made, and has the change pushed after the quiet time. */
  | { readonly do: 'probe' }
  /** Changes one workload after another at this rate, until the next such command. */
  | { readonly do: 'churn'; readonly perSecond: number }
  /** Forgets the longest turn and the largest memory so far. */
  | { readonly do: 'begin' }
  | { readonly do: 'report' };

/** Resources that the server used since the last `begin`. */
export interface ServerReport extends LongestTurns {
  readonly resources: number;
  /** Streams that are open. */
  readonly streams: number;
  readonly cpuMs: number;
  readonly rssMb: number;
  readonly largestRssMb: number;
}

/** The first message of the server. */
export interface ServerStarted {
  readonly address: string;
  readonly plainAddress: string;
  readonly rootCa: string;
}

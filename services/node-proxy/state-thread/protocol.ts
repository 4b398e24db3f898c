/** What crosses between the main thread and the state thread. Plain data and ports only. */
import type { MessagePort } from 'node:worker_threads';
import type { LogFormat } from '../../../lib/log/logger.ts';
import type { WireError } from '../../../lib/errors/mesh-error.ts';
import type { PodInfo } from '../../../workers/listener/protocol.ts';
import type { ProfileCommand, ThreadProfile } from '../../../lib/profile/thread-profiler.ts';

/** The replicated tables the state is made of. */
export const STATE_TABLES = ['addresses', 'authorizations', 'rejections', 'programs'] as const;

/** One of {@link STATE_TABLES}. */
export type StateTable = (typeof STATE_TABLES)[number];

/** A workload by name, as the node agent and PROXY_WORKLOAD_INFO tell it. */
export type WorkloadName = Pick<PodInfo, 'namespace' | 'name' | 'serviceAccount'>;

/** What the state thread is started with. */
export interface StateSettings {
  readonly node: string;
  /** The one workload the process serves, in dedicated mode. */
  readonly dedicatedTo: WorkloadName | null;
  readonly logLevel: string;
  readonly logFormat: LogFormat;
  readonly policyUnknownReference: 'deny' | 'ignore';
}

/** Rows in one buffer, so that a message moves instead of being copied value by value. */
export interface PackedRows {
  readonly keys: readonly string[];
  /** Where each value ends in `data`; -1 = the row is removed. */
  readonly ends: Int32Array;
  readonly data: Uint8Array<ArrayBuffer>;
}

/** One step of a table, as the bus tells it. Answered by `fed` once it is applied. */
export type FeedStep =
  | { readonly kind: 'reset' }
  | { readonly kind: 'entries'; readonly rows: PackedRows }
  | { readonly kind: 'synced' }
  | { readonly kind: 'changes'; readonly rows: PackedRows };

/** What a dump lists. */
export type DumpSection = 'workloads' | 'services' | 'policies';

/** Main thread → state thread. */
export type ToStateThread =
  | { readonly type: 'connect'; readonly thread: number; readonly port: MessagePort }
  | {
      readonly type: 'feed';
      readonly id: number;
      readonly table: StateTable;
      readonly step: FeedStep;
    }
  | { readonly type: 'dump'; readonly id: number; readonly section: DumpSection }
  /** The next part of a dump, please. */
  | { readonly type: 'dump.next'; readonly id: number }
  /** Nobody wants the rest of it. */
  | { readonly type: 'dump.end'; readonly id: number }
  | { readonly type: 'profile'; readonly id: number; readonly command: ProfileCommand }
  | { readonly type: 'log.level'; readonly level: string }
  | { readonly type: 'stop' };

/** State thread → main thread. */
export type FromStateThread =
  | { readonly type: 'ready' }
  | { readonly type: 'fed'; readonly id: number }
  | {
      readonly type: 'dump';
      readonly id: number;
      /** JSON objects with commas between them; null at the end. */
      readonly text: string | null;
    }
  | { readonly type: 'profile'; readonly id: number; readonly profile: ThreadProfile }
  /** Of a dump or a profile. */
  | { readonly type: 'failed'; readonly id: number; readonly error: WireError }
  /** Identities of this node's mesh workloads, all of them, when they change. */
  | { readonly type: 'identities'; readonly identities: readonly string[] }
  | { readonly type: 'stats'; readonly stats: StateStats };

/** Gauges of the state thread, told about once a second while something changes. */
export interface StateStats {
  readonly workloads: number;
  readonly services: number;
  readonly policies: number;
  readonly rejectedPolicies: number;
  readonly unreadableRows: number;
  readonly programsReceived: number;
  readonly programsCompiled: number;
  readonly lookups: number;
}

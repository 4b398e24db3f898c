/** Messages between the main thread and the state thread. Plain data and ports only. */
import type { MessagePort } from 'node:worker_threads';
import type { LogFormat } from '../../../lib/log/logger.ts';
import type { WireError } from '../../../lib/errors/mesh-error.ts';
import type { PodInfo } from '../../../workers/listener/protocol/control.ts';
import type { TablePosition } from './on-demand/answered-names.ts';
import type { DemandStats } from './on-demand/demands.ts';
import type { ProfileCommand, ThreadProfile } from '../../../lib/profile/thread-profiler.ts';

/** The replicated tables that make the state. */
export const STATE_TABLES = [
  'addresses',
  'authorizations',
  'rejections',
  'programs',
  'names',
] as const;

/** One of {@link STATE_TABLES}. */
export type StateTable = (typeof STATE_TABLES)[number];

/** A workload by name, as the node agent and PROXY_WORKLOAD_INFO name it. */
export type WorkloadName = Pick<PodInfo, 'namespace' | 'name' | 'serviceAccount'>;

/** Settings of the state thread. */
export interface StateSettings {
  readonly node: string;
  /** The one workload the process serves, in dedicated mode. */
  readonly dedicatedTo: WorkloadName | null;
  readonly logLevel: string;
  readonly logFormat: LogFormat;
  readonly policyUnknownReference: 'deny' | 'ignore';
  /** Null = the whole mesh is followed. */
  readonly onDemand?: OnDemandSettings | null;
}

/** Settings of a mesh that is followed on demand. */
export interface OnDemandSettings {
  /** Longest wait of a lookup, milliseconds. */
  readonly waitMs: number;
  /** Begins the uids of the pods of this cluster. */
  readonly clusterId: string;
}

/** Rows in one buffer, so that a message transfers them instead of copying each value. */
export interface PackedRows {
  readonly keys: readonly string[];
  /** End of each value in `data`; -1 = the row is removed. */
  readonly ends: Int32Array;
  readonly data: Uint8Array<ArrayBuffer>;
}

/** One step of a table, as the bus reports it. The state thread answers with `fed` when the step is applied. */
export type FeedStep =
  /** The copy that begins holds at least the changes up to `at`. */
  | { readonly kind: 'reset'; readonly at?: TablePosition }
  | { readonly kind: 'entries'; readonly rows: PackedRows }
  | { readonly kind: 'synced' }
  /** With these, all changes up to `version` are told. */
  | { readonly kind: 'changes'; readonly rows: PackedRows; readonly version?: number };

/** Takes the steps of a table; resolves when it wants the next. */
export type FeedTarget = (table: StateTable, step: FeedStep) => Promise<void>;

/** A section of a dump. */
export type DumpSection = 'workloads' | 'services' | 'policies' | 'names';

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
  /** Requests the next part of a dump. */
  | { readonly type: 'dump.next'; readonly id: number }
  /** Gives up the rest of a dump. */
  | { readonly type: 'dump.end'; readonly id: number }
  | { readonly type: 'profile'; readonly id: number; readonly command: ProfileCommand }
  | { readonly type: 'log.level'; readonly level: string }
  | { readonly type: 'memory.release' }
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
  /** A dump or a profile failed. */
  | { readonly type: 'failed'; readonly id: number; readonly error: WireError }
  /** All identities of this node's mesh workloads, sent when they change. */
  | { readonly type: 'identities'; readonly identities: readonly string[] }
  /** Names to ask the ingester for. */
  | { readonly type: 'want'; readonly names: readonly string[] }
  | { readonly type: 'stats'; readonly stats: StateStats };

/** Gauges of the state thread, sent about once a second while they change. */
export interface StateStats {
  readonly workloads: number;
  readonly services: number;
  readonly policies: number;
  readonly rejectedPolicies: number;
  readonly unreadableRows: number;
  readonly programsReceived: number;
  readonly programsCompiled: number;
  readonly lookups: number;
  /** Null while the whole mesh is followed. */
  readonly onDemand: (DemandStats & { readonly answered: number }) | null;
}

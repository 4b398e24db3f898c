/** Messages between node-proxy and a listener thread. Each is plain data that survives structured clone; errors cross as WireError. */
import type { MessagePort } from 'node:worker_threads';
import type { WireError } from '../../../lib/errors/mesh-error.ts';
import type { RevocationLists } from '../../../lib/identity/crl.ts';
import type { WorkloadCertificate } from '../../../lib/identity/workload-certificate.ts';
import type { AccessSettings } from '../../../lib/log/access-gate.ts';
import type { Series, SeriesMessage } from '../../../lib/metrics/series-memory.ts';
import type { ExportDrops, ExportedConnection } from '../../../lib/otlp/model.ts';
import type { ProfileCommand, ThreadProfile } from '../../../lib/profile/thread-profiler.ts';
import type { ConnectionRecord } from './connections.ts';
import type { ListenerSettings } from './settings.ts';

/** Names of the functions that `listener.worker.ts` exports as piscina tasks. */
export type ListenerTask = 'attach' | 'servePod';

/** Given once to each thread, before any pod. `attach` resolves when the ports are wired. */
export interface ThreadAttachment {
  readonly thread: number;
  readonly settings: ListenerSettings;
  readonly control: MessagePort;
  readonly state: MessagePort;
  /** The revocation lists in force; null while there are none. */
  readonly revocations: RevocationLists | null;
  /** Memory in which all threads of the process count what is limited for all of them; null counts this thread only. */
  readonly budget: SharedArrayBuffer | null;
}

/** A pod to serve. `servePod` resolves when the pod is stopped and all its sockets are closed. */
export interface PodTask {
  readonly pod: PodInfo;
  /** A descriptor of the pod's network namespace, owned by node-proxy until the task ends. */
  readonly netnsFd: number;
}

/** A pod as the node agent announced it. */
export interface PodInfo {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly serviceAccount: string;
  /** The proxy itself: tunnels in alone, on unmarked sockets that never carry another's address (docs/spec/dataplane.md §7.7). */
  readonly own?: boolean;
}

/** Reports that a thread gives on request. */
export type ReportKind = 'connections' | 'recent' | 'metrics' | 'activity' | 'exports';

/** The activity of a pod on a thread since it was placed there, in about microseconds of the thread's time. */
export interface PodActivity {
  readonly uid: string;
  readonly total: number;
}

/** node-proxy → thread, on the control port. */
export type ControlToThread =
  | { readonly type: 'certificate'; readonly certificate: WorkloadCertificate }
  | {
      readonly type: 'certificate.unavailable';
      readonly identity: string;
      readonly error: WireError;
    }
  /** No pod of the thread has the identity any more. */
  | { readonly type: 'certificate.drop'; readonly identity: string }
  /** Revocation lists instead of those in force; live tunnels are held against them too. */
  | { readonly type: 'revocations'; readonly lists: RevocationLists }
  /**
   * Immediate: listeners and connections end at once. Graceful: listeners close, connections may run on until the
   * deadline, `Infinity` = until they end; a later stop may bring it forward.
   */
  | {
      readonly type: 'pod.stop';
      readonly uid: string;
      readonly mode: 'immediate' | 'graceful';
      readonly deadlineMs: number;
    }
  | {
      readonly type: 'report';
      readonly id: number;
      readonly what: ReportKind;
      /** With access lines. */
      readonly withLines?: boolean;
    }
  | { readonly type: 'profile'; readonly id: number; readonly command: ProfileCommand }
  /** The pod is served by this many threads: its limits are divided among them. */
  | { readonly type: 'pod.divide'; readonly uid: string; readonly threads: number }
  | { readonly type: 'log.level'; readonly level: string }
  | { readonly type: 'access.settings'; readonly settings: AccessSettings }
  /** The series at this slot are read no more. */
  | { readonly type: 'series.released'; readonly at: number }
  /** The process is idle and gives memory back. */
  | { readonly type: 'memory.release' }
  /** A port to another listener thread of this process, which gets the other end. */
  | { readonly type: 'neighbour'; readonly port: MessagePort };

/** Thread → node-proxy, on the control port. */
export type ControlFromThread =
  /** All listeners of the pod are bound and listening. */
  | { readonly type: 'pod.listening'; readonly uid: string }
  | { readonly type: 'pod.failed'; readonly uid: string; readonly error: WireError }
  /** A connection waits for this identity: fetch it before anything else. */
  | { readonly type: 'certificate.needed'; readonly identity: string }
  | {
      readonly type: 'report';
      readonly id: number;
      readonly connections: readonly ConnectionRecord[];
      /** More follow, so that a thread with many is not held up by telling of them. */
      readonly done: boolean;
    }
  /** All values in the memory of the thread's series are up to date. */
  | { readonly type: 'report'; readonly id: number; readonly refreshed: true }
  | { readonly type: 'series'; readonly message: SeriesMessage }
  | {
      readonly type: 'report';
      readonly id: number;
      readonly exports: readonly ExportedConnection[];
      /** Since the last report; zero in all messages of a report but its last. */
      readonly dropped: ExportDrops;
      /** More follow. */
      readonly done: boolean;
    }
  | { readonly type: 'report'; readonly id: number; readonly activity: readonly PodActivity[] }
  | { readonly type: 'profile'; readonly id: number; readonly profile: ThreadProfile }
  | { readonly type: 'profile.failed'; readonly id: number; readonly error: WireError };

/** A counter, gauge or histogram value of a thread; node-proxy sums equal label sets over its threads. */
export interface MetricSample extends Series {
  readonly value: number;
}

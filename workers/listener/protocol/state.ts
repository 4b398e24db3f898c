/** Messages between a listener thread and the state thread. Plain data. */
import type { EffectivePolicy, PolicyProgram } from '../../../lib/policy/model.ts';
import type { Endpoint, LoadBalancing, Service, Workload } from '../../../lib/state/model.ts';
import type { AnswerHead, LookupKey } from '../../../lib/state/view.ts';
import type { PodInfo } from './control.ts';

/** The state of one of a thread's own pods; pushed on `watch` and on every change. */
export interface LocalPod {
  /** Null while the workload is not known (yet). */
  readonly workload: Workload | null;
  /** The services the workload belongs to. */
  readonly services: readonly Service[];
  readonly policy: EffectivePolicy;
}

/** Thread → state thread. */
export type StateRequest =
  | { readonly type: 'watch'; readonly pod: PodInfo }
  | { readonly type: 'unwatch'; readonly uid: string }
  | {
      readonly type: 'lookup';
      readonly id: number;
      readonly keys: readonly LookupKey[];
      /** The pod that needs the answer, where the mesh is followed on demand; without one nothing is asked for. */
      readonly pod?: string;
      /** A connection waits: the answer may come seconds later. */
      readonly wait?: boolean;
    }
  /** The last `endpoints` of the service is taken in: the next one may come. */
  | { readonly type: 'endpoints.taken'; readonly service: string; readonly epoch: number }
  /** Endpoints of the service that were told under this epoch are not held any more. */
  | { readonly type: 'endpoints.release'; readonly service: string; readonly epoch: number };

/** State thread → thread. A program always precedes the first `local` that names its set. */
export type StateResponse =
  | { readonly type: 'program'; readonly program: PolicyProgram }
  | { readonly type: 'program.drop'; readonly setId: string }
  | { readonly type: 'local'; readonly uid: string; readonly pod: LocalPod }
  /** One answer per key asked for, in order; null = cannot tell yet (not synced). All endpoints of its services came before it. */
  | {
      readonly type: 'answer';
      readonly id: number;
      readonly answers: readonly (AnswerHead | null)[];
    }
  /** Endpoints of a service that are new or changed, by uid; null = the workload is none of them. Each is answered by `endpoints.taken`. */
  | {
      readonly type: 'endpoints';
      readonly service: string;
      /** Each message with `anew` begins another one, which the requests repeat: they cross what the state thread sends. */
      readonly epoch: number;
      /** Not null: what was held before is to be forgotten. */
      readonly anew: { readonly balancing: LoadBalancing | null } | null;
      readonly endpoints: readonly (readonly [uid: string, endpoint: Endpoint | null])[];
    }
  /** These cached answers are stale, by lookup id; null = all of them. */
  | { readonly type: 'invalidate'; readonly ids: readonly string[] | null };

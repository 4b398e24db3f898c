import type { WorkQueue } from '../../lib/bus/work-queue.ts';
import type { CompileBody } from '../../lib/bus/catalog.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { TimeSlice } from '../../lib/async/time-slice.ts';
import type { PolicyStore } from '../../lib/policy/policy-store.ts';
import { EMPTY_SET_ID } from '../../lib/policy/set-id.ts';
import { REQUEST_AGAIN_MAX_MS, REQUEST_AGAIN_MS, SLICE_MS, UNUSED_PROGRAM_MS } from './limits.ts';
import type { ProgramTable } from './program-table.ts';
import type { WorkloadClass } from './workload-classes.ts';

/** Dependencies of the registry. */
export interface SetRegistryDeps {
  readonly clock: Clock;
  readonly policies: PolicyStore;
  readonly classes: { values(): Iterable<WorkloadClass> };
  readonly programs: ReadonlySet<string>;
  readonly queue: WorkQueue<CompileBody>;
  readonly table: ProgramTable;
  requested(): void;
  dropped(count: number): void;
}

/** A set in use. */
export interface UsedSet {
  readonly setId: string;
  readonly keys: readonly string[];
  readonly workloads: number;
}

/** The requests for a set without a program: their number, and the time of the next. */
interface Request {
  readonly times: number;
  readonly againAtMs: number;
}

/** Knows the policy sets that workloads use. It requests programs for sets without one and drops unused programs. */
export class SetRegistry {
  readonly #deps: SetRegistryDeps;
  #used: ReadonlyMap<string, UsedSet> = new Map();
  #unknownReferences = 0;
  readonly #requests = new Map<string, Request>();
  /** Set id → the time since which its program is unused. */
  readonly #unusedSince = new Map<string, number>();

  constructor(deps: SetRegistryDeps) {
    this.#deps = deps;
  }

  /** Sets in use as of the last look. */
  get used(): ReadonlyMap<string, UsedSet> {
    return this.#used;
  }

  /** Sets in use without a program. */
  get waiting(): number {
    let count = 0;
    for (const setId of this.#used.keys()) if (!this.#deps.programs.has(setId)) count += 1;
    return count;
  }

  /** Number of policy keys that workloads list and that are not known. */
  get unknownReferences(): number {
    return this.#unknownReferences;
  }

  /** Looks at all workloads anew, in slices, and acts. Throws BUS_UNAVAILABLE when Redis is away; the next call does the rest. */
  async reconcile(): Promise<void> {
    await this.#survey();
    await this.#request();
    await this.#dropUnused();
  }

  async #survey(): Promise<void> {
    const { classes, policies } = this.#deps;
    const slice = new TimeSlice(SLICE_MS);
    const used = new Map<string, UsedSet>();
    const unknown = new Set<string>();
    for (const { subject, workloads } of classes.values()) {
      const { setId, policies: members, missing } = policies.setFor(subject);
      for (const key of missing) unknown.add(key);
      const known = used.get(setId);
      used.set(setId, {
        setId,
        keys: known?.keys ?? members.map(({ key }) => key),
        workloads: workloads + (known?.workloads ?? 0),
      });
      await slice.breathe();
    }
    this.#used = used;
    this.#unknownReferences = unknown.size;
  }

  async #request(): Promise<void> {
    const { clock, programs, queue, requested } = this.#deps;
    for (const setId of this.#requests.keys()) {
      if (programs.has(setId) || !this.#used.has(setId)) this.#requests.delete(setId);
    }
    for (const { setId, keys } of this.#used.values()) {
      if (programs.has(setId)) continue;
      const { times, againAtMs } = this.#requests.get(setId) ?? { times: 0, againAtMs: 0 };
      const now = clock.now();
      if (now < againAtMs) continue;
      await queue.add(setId, { setId, keys: [...keys] });
      requested();
      const waitMs = Math.min(REQUEST_AGAIN_MAX_MS, REQUEST_AGAIN_MS * 2 ** Math.min(times, 20));
      this.#requests.set(setId, { times: times + 1, againAtMs: now + waitMs });
    }
  }

  async #dropUnused(): Promise<void> {
    const { clock, dropped, programs, table } = this.#deps;
    const now = clock.now();
    for (const setId of this.#unusedSince.keys()) {
      if (this.#used.has(setId) || !programs.has(setId)) this.#unusedSince.delete(setId);
    }
    const old: string[] = [];
    for (const setId of programs) {
      // Always kept: with it the table is never empty.
      if (this.#used.has(setId) || setId === EMPTY_SET_ID) continue;
      const since = this.#unusedSince.get(setId) ?? now;
      this.#unusedSince.set(setId, since);
      if (now - since >= UNUSED_PROGRAM_MS) old.push(setId);
    }
    if (old.length === 0) return;
    await table.drop(old);
    dropped(old.length);
  }
}

/** Cuts off a pod whose rules are missing and cannot be written, within the node's limit (docs/decisions/cut-off.md). */
import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import { CUT_AFTER_FAILURES } from './limits.ts';
import type { Exposure } from './metrics.ts';
import type { PodRules, RuleDeps } from './pod-rules.ts';

/** The reasons of a pod's Events. */
export type PodEvent = 'MeshEnrolmentFailed' | 'MeshPodCutOff' | 'MeshPodOpen';

/** The dependencies that the guards of a node share. */
export interface GuardDeps extends Pick<RuleDeps, 'log' | 'metrics'> {
  /** Tells people what is wrong with the pod; once for each text. */
  readonly tell: (record: PodRecord, event: PodEvent, text: string) => void;
  /** Returns whether the pod may be cut off now, and counts that. Null while not every pod of the node was looked at. */
  readonly mayCut: () => boolean | null;
  /** Called when the pod was found cut off, by the agent before this one. */
  readonly onCutFound: () => void;
}

/** Why a pod is left open. */
const CUT_LIMITED =
  'the pod stays open, outside the mesh: enough pods of the node are cut off; weft doctor --cut cuts off the others';

/** The rules that a guard looks at and cuts by. */
type GuardedRules = Pick<PodRules, 'netns' | 'open' | 'cutOff' | 'standing' | 'cut' | 'uncut'>;

/** Guards one pod. Calls must not overlap, as those of {@link PodRules}. */
export class PodGuard {
  /** True once the namespace was opened or could not be opened. An earlier cut is known from then on. */
  lookedAt = false;
  readonly #deps: GuardDeps;
  readonly #rules: GuardedRules;
  /** Null while the pod has its rules, or may have them. */
  #exposure: Exposure | null = null;
  /** Attempts in a row that could not write the rules. */
  #failures = 0;
  #mayCut = false;

  constructor(deps: GuardDeps, rules: GuardedRules) {
    this.#deps = deps;
    this.#rules = rules;
  }

  get exposure(): Exposure | null {
    return this.#exposure;
  }

  /** True from a failure until the rules are written. */
  get failing(): boolean {
    return this.#failures > 0;
  }

  /** Lets the next {@link failed} cut the pod off whatever the limit. Returns false when the pod is not open. */
  allow(): boolean {
    if (this.#exposure !== 'open') return false;
    this.#mayCut = true;
    return true;
  }

  /** Opens the namespace as {@link PodRules.open} does, and finds a cut by the agent before this one. */
  async open(record: PodRecord): Promise<boolean> {
    try {
      const isNew = await this.#rules.open(record);
      if (isNew && this.#rules.cutOff) {
        this.#exposure = 'cut';
        this.#mayCut = true;
        this.#deps.onCutFound();
      }
      return isNew;
    } finally {
      this.lookedAt = true;
    }
  }

  /** Handles that the rules could not be written. */
  async failed(record: PodRecord, reason: string): Promise<void> {
    try {
      await this.#judge(record, reason);
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      this.#deps.log.error({ ...name(record), reason: error.message }, 'pod.not-guarded');
    }
  }

  /** Handles that the rules were written, which has ended a cut. */
  written(record: PodRecord): void {
    if (this.#exposure !== null) {
      this.#deps.log.info({ ...name(record), exposure: this.#exposure }, 'pod.protected-again');
    }
    this.#forget();
  }

  /** Ends a cut because the pod leaves the mesh. Rejects with NETNS_RULES when that fails. */
  async leave(): Promise<void> {
    await this.#rules.uncut();
    this.#forget();
  }

  /** A later cut asks the limit anew, after as many failures. */
  #forget(): void {
    this.#exposure = null;
    this.#failures = 0;
    this.#mayCut = false;
  }

  async #judge(record: PodRecord, reason: string): Promise<void> {
    if (this.#rules.netns === null) return;
    this.#failures += 1;
    if (this.#failures < CUT_AFTER_FAILURES) return;
    if (this.#rules.cutOff) {
      this.#exposure = 'cut';
      return;
    }
    if (await this.#rules.standing(record)) return;
    if (this.#exposure === null && !this.#mayCut) {
      const may = this.#deps.mayCut();
      // The next attempt asks again.
      if (may === null) return;
      this.#mayCut = may;
    }
    const open = this.#mayCut ? await this.#cut(record, reason) : CUT_LIMITED;
    if (open === null || this.#exposure === 'open') return;
    this.#exposure = 'open';
    this.#deps.log.error({ ...name(record), reason, open }, 'pod.open');
    // The end of a long message is cut.
    this.#deps.tell(record, 'MeshPodOpen', `${open}; its rules cannot be written: ${reason}`);
  }

  /** Returns why the pod could not be cut off; null when it is. */
  async #cut(record: PodRecord, reason: string): Promise<string | null> {
    const { log, metrics, tell } = this.#deps;
    try {
      await this.#rules.cut();
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      return `the pod cannot be cut off: ${error.message}`;
    }
    this.#exposure = 'cut';
    metrics.cutOff();
    log.error({ ...name(record), reason }, 'pod.cut-off');
    tell(record, 'MeshPodCutOff', `cut off until its rules can be written: ${reason}`);
    return null;
  }
}

function name({ uid, namespace, name: pod }: PodRecord): Record<string, string> {
  return { uid, namespace, pod };
}

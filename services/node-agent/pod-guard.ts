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
  /** Returns whether one more pod of the node may be cut off now, and counts it. */
  readonly mayCut: () => boolean;
}

/** Why a pod is left open. */
const CUT_LIMITED =
  'the pod stays open, outside the mesh: enough pods of the node were cut off within a minute; weft doctor --cut cuts off the others';

/** Guards one pod. Calls must not overlap, as those of {@link PodRules}. */
export class PodGuard {
  readonly #deps: GuardDeps;
  readonly #rules: Pick<PodRules, 'netns' | 'cutOff' | 'standing' | 'cut' | 'uncut'>;
  /** Null while the pod has its rules, or may have them. */
  #exposure: Exposure | null = null;
  /** Attempts in a row that could not write the rules. */
  #failures = 0;
  #mayCut = false;

  constructor(
    deps: GuardDeps,
    rules: Pick<PodRules, 'netns' | 'cutOff' | 'standing' | 'cut' | 'uncut'>,
  ) {
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
    this.#exposure = null;
    this.#failures = 0;
    this.#mayCut = false;
  }

  /** Ends a cut because the pod leaves the mesh. Rejects with NETNS_RULES when that fails. */
  async leave(): Promise<void> {
    await this.#rules.uncut();
    this.#exposure = null;
  }

  async #judge(record: PodRecord, reason: string): Promise<void> {
    if (this.#rules.netns === null) return;
    this.#failures += 1;
    if (this.#failures < CUT_AFTER_FAILURES) return;
    if (this.#rules.cutOff) {
      // By the agent before this one, perhaps.
      this.#exposure = 'cut';
      return;
    }
    if (await this.#rules.standing(record)) return;
    this.#mayCut ||= this.#exposure === null && this.#deps.mayCut();
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

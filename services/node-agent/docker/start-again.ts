/** Starts containers again that weft-runtime refused while no agent let them start: the engine itself tries once only. */
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import type { EngineView } from '../../../lib/docker/engine-view.ts';
import { claimOf } from '../../../lib/docker/pod-container.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';

/** Time between two looks for such containers. */
const AGAIN_MS = 30_000;
/** Begins the reasons of weft-runtime (cni/plugin/runtime.cc). */
const REFUSAL = 'weft-runtime: ';
/** Policies under which the engine restarts a container, whatever its exit status. */
const RESTARTED: ReadonlySet<string> = new Set(['always', 'unless-stopped']);
const STOPPED: ReadonlySet<string> = new Set(['created', 'exited']);

/** Dependencies of a {@link StartAgain}. */
export interface StartAgainDeps {
  readonly engine: Pick<EngineView, 'list' | 'inspectIfPresent' | 'start'>;
  readonly node: string;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'warn'>;
}

/** Looks at once when it begins, as after a boot, and every {@link AGAIN_MS}. */
export class StartAgain {
  readonly #deps: StartAgainDeps;
  readonly #abort = new AbortController();
  #timer: Timer | null = null;
  #round: Promise<void> | null = null;

  constructor(deps: StartAgainDeps) {
    this.#deps = deps;
  }

  /** Begins. */
  start(): void {
    this.#timer = this.#deps.clock.every(AGAIN_MS, () => this.#look());
    this.#look();
  }

  /** Ends a start that is under way. */
  async stop(): Promise<void> {
    this.#timer?.cancel();
    this.#abort.abort(new Error('stopped'));
    await this.#round;
  }

  #look(): void {
    this.#round ??= this.#startRefused().finally(() => {
      this.#round = null;
    });
  }

  async #startRefused(): Promise<void> {
    const { engine, log } = this.#deps;
    try {
      for (const container of await engine.list(true)) {
        if (this.#abort.signal.aborted) return;
        if (!this.#isMine(container)) continue;
        const { Id: id } = container;
        const details = await engine.inspectIfPresent(id);
        const policy = details?.HostConfig.RestartPolicy?.Name ?? '';
        if (!details?.State.Error.includes(REFUSAL) || !RESTARTED.has(policy)) continue;
        await this.#startOne(id);
      }
    } catch (error) {
      // The engine is away; its next answer is looked at.
      log.warn({ reason: errorText(error) }, 'containers.not-looked-at');
    }
  }

  #isMine(container: Parameters<typeof claimOf>[0] & { readonly State: string }): boolean {
    const claim = claimOf(container, this.#deps.node);
    if (!STOPPED.has(container.State) || claim === null || typeof claim === 'string') return false;
    return claim.node === this.#deps.node;
  }

  async #startOne(container: string): Promise<void> {
    const { engine, log } = this.#deps;
    try {
      await engine.start(container, this.#abort.signal);
      log.info({ container }, 'container.started-again');
    } catch (error) {
      log.warn({ container, reason: errorText(error) }, 'container.not-started');
    }
  }
}

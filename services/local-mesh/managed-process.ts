import type { ChildProcess } from 'node:child_process';
import type { ActorState } from '../../lib/actor/actor.ts';
import { EXIT_CONFIG } from '../../lib/actor/run-actors.ts';
import { Backoff } from '../../lib/clock/backoff.ts';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { startLogged } from './logged-process.ts';
import type { LoggedCommand, ProcessEnd } from './logged-process.ts';
import { kill } from './processes.ts';
import { ask, askJson } from './unix-http.ts';

/** A process to keep running. */
export interface ProcessSpec extends LoggedCommand {
  readonly name: string;
  readonly node: string | null;
  /** Socket of the actor host's admin server; null when the process has none. Such a process is ready once it runs. */
  readonly adminSocket: string | null;
  /** Grows with each upgrade of the role; default 1. */
  readonly generation?: number;
}

/** `backoff`: waits for its next start. `external`: the user's own program plays the role. */
export type ProcessState = ActorState | 'backoff' | 'external';

/** One line of `weft status`. */
export interface ProcessStatus {
  readonly name: string;
  readonly node: string | null;
  readonly pid: number | null;
  readonly state: ProcessState;
  /** Conditions that readiness waits for. */
  readonly pending: readonly string[];
  readonly restarts: number;
  readonly uptimeSeconds: number;
  readonly generation: number;
  /** True for a replaced process that still drains. */
  readonly retiring: boolean;
}

/** The delay between restarts grows to 30 s; it starts over after a process ran this long. */
const RESTART_BACKOFF = { baseMs: 200, maxMs: 30_000 } as const;
const STABLE_AFTER_MS = 20_000;
const ADMIN_TIMEOUT_MS = 2_000;
/** Time for connections to end by themselves before a drain is cut short. */
const HURRY_MS = 500;
/** The pending condition of a process that refused its configuration. */
export const CONFIGURATION = 'configuration';

/** Keeps one process running: restarts it with back-off until it is stopped. */
export class ManagedProcess {
  readonly spec: ProcessSpec;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #backoff = new Backoff(RESTART_BACKOFF);
  #child: ChildProcess | null = null;
  #ended: Promise<void> = Promise.resolve();
  #startedAt = 0;
  #timer: Timer | null = null;
  #state: ProcessState = 'created';
  #pending: readonly string[] = ['start'];
  #restarts = 0;
  #stopping = false;
  /** Called after each start and each end of the process. */
  onChange: () => void = () => undefined;

  constructor(spec: ProcessSpec, deps: { readonly clock: Clock; readonly log: Logger }) {
    this.spec = spec;
    this.#clock = deps.clock;
    this.#log = deps.log.child({ process: spec.name, node: spec.node ?? undefined });
  }

  /** Starts the process, unless a stop was requested. Rejects only when its log cannot be opened. */
  async start(): Promise<void> {
    await startLogged(this.spec, (start) => {
      // A stop that came while the log was opened found no child to end.
      if (this.#stopping) return;
      const { child, ended } = start();
      this.#child = child;
      this.#startedAt = this.#clock.monotonic();
      this.#become('starting', ['start']);
      this.#ended = ended.then((end) => this.#onEnd(child, end));
      this.onChange();
    });
  }

  #onEnd(child: ChildProcess, { code, how }: ProcessEnd): void {
    if (this.#child === child) this.#child = null;
    if (this.#stopping) this.#state = 'stopped';
    else if (code === EXIT_CONFIG) {
      // A restart does not mend a wrong configuration.
      this.#become('failed', [CONFIGURATION]);
      this.#log.error({ how }, 'process.misconfigured');
    } else this.#scheduleRestart(how);
    this.onChange();
  }

  #scheduleRestart(how: string): void {
    if (this.#stopping) return;
    if (this.#clock.monotonic() - this.#startedAt >= STABLE_AFTER_MS) this.#backoff.reset();
    const delayMs = this.#backoff.next();
    this.#become('backoff', ['restart']);
    this.#log.warn({ how, delayMs: Math.round(delayMs) }, 'process.ended');
    this.#timer = this.#clock.after(delayMs, () => {
      this.#restarts += 1;
      this.start().catch((error: unknown) => this.#scheduleRestart(errorText(error)));
    });
  }

  /** The pid while it runs. */
  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  /** Whether it refused its configuration; it is then not restarted. */
  get misconfigured(): boolean {
    return this.#pending.includes(CONFIGURATION);
  }

  /** Asks the process for its state. Without an answer the state stays `starting`. */
  async refresh(): Promise<void> {
    if (this.#child === null) return;
    if (this.spec.adminSocket === null) {
      this.#become('ready', []);
      return;
    }
    const child = this.#child;
    try {
      const { state, pending } = await askState(this.spec.adminSocket);
      if (this.#child === child) this.#become(state, pending);
    } catch (error) {
      // Expected during the start. A process that stops answering later is not ready.
      if (this.#child === child) this.#become('starting', ['admin']);
      this.#log.debug({ error: errorText(error) }, 'process.no-answer');
    }
  }

  #become(state: ProcessState, pending: readonly string[]): void {
    this.#state = state;
    this.#pending = pending;
  }

  status(): ProcessStatus {
    const up = this.#child === null ? 0 : this.#clock.monotonic() - this.#startedAt;
    return {
      name: this.spec.name,
      node: this.spec.node,
      pid: this.pid,
      state: this.#state,
      pending: this.#pending,
      restarts: this.#restarts,
      uptimeSeconds: Math.floor(up / 1_000),
      generation: this.spec.generation ?? 1,
      retiring: false,
    };
  }

  /** Waits for the process to end by itself and prevents a restart. */
  left(): Promise<void> {
    this.#stopping = true;
    this.#timer?.cancel();
    return this.#ended;
  }

  /**
   * Tells the process to drain within its own deadline or, with `unbounded`, without one, and prevents a restart. Resolves
   * once the process was told.
   */
  async retire({ unbounded }: { readonly unbounded: boolean }): Promise<void> {
    void this.left();
    if (this.spec.adminSocket === null) this.#child?.kill('SIGTERM');
    else if (!(await askToEnd(this.spec.adminSocket, unbounded, this.#log))) {
      this.#child?.kill('SIGTERM');
    }
  }

  /** Ends the process for good: SIGTERM, the end of an actor's drain after `hurryMs`, SIGKILL after `graceMs`. Idempotent. */
  async stop(graceMs: number, hurryMs: number = HURRY_MS): Promise<void> {
    this.#stopping = true;
    this.#timer?.cancel();
    const child = this.#child;
    if (child?.pid === undefined) {
      this.#state = 'stopped';
      return;
    }
    child.kill('SIGTERM');
    // SIGINT ends the drain of an actor.
    const hurry = this.#clock.after(Math.min(hurryMs, graceMs), () => {
      if (this.spec.adminSocket !== null) child.kill('SIGINT');
    });
    const force = this.#clock.after(graceMs, () => kill(-(child.pid ?? 0), 'SIGKILL'));
    await this.#ended;
    hurry.cancel();
    force.cancel();
  }
}

/** Returns the names of the actors that are not ready: `<node>/<name>` or `<name>`. */
export function lateActors(statuses: readonly ProcessStatus[]): readonly string[] {
  return statuses
    .filter(({ state, retiring }) => state !== 'external' && !retiring)
    .filter(({ state, pending }) => state !== 'ready' || pending.length > 0)
    .map(({ name, node }) => (node === null ? name : `${node}/${name}`));
}

/** Asks an actor's admin server for its state. Throws STATE_UNAVAILABLE. */
export async function askState(socket: string): Promise<Pick<ProcessStatus, 'state' | 'pending'>> {
  const { actors } = await askJson<{
    readonly actors: readonly Pick<ProcessStatus, 'state' | 'pending'>[];
  }>({ socket, path: '/status', timeoutMs: ADMIN_TIMEOUT_MS });
  return actors[0] ?? { state: 'starting', pending: ['admin'] };
}

/** Tells an actor through its admin server to drain and end. False, with a warning, when it does not answer. */
export async function askToEnd(socket: string, unbounded: boolean, log: Logger): Promise<boolean> {
  const path = `/quitquitquit${unbounded ? '?deadline=none' : ''}`;
  try {
    const { status, body } = await ask({
      socket,
      method: 'POST',
      path,
      timeoutMs: ADMIN_TIMEOUT_MS,
    });
    if (status === 200) return true;
    throw new MeshError('STATE_UNAVAILABLE', `answered ${status}: ${body.trim()}`);
  } catch (error) {
    log.warn({ socket, error: errorText(error) }, 'process.not-told-to-drain');
    return false;
  }
}

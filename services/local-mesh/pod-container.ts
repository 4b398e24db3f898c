import type { ChildProcess } from 'node:child_process';
import { Backoff } from '../../lib/clock/backoff.ts';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { startLogged } from './logged-process.ts';
import type { LoggedCommand, LoggedProcess } from './logged-process.ts';
import { kill } from './processes.ts';

/** A container's command line, including the command that enters the pod. */
export interface ContainerSpec extends LoggedCommand {
  readonly restartPolicy: 'Always' | 'OnFailure' | 'Never';
}

/** `backoff`: waits for its next start. */
export type ContainerState = 'running' | 'backoff' | 'succeeded' | 'failed' | 'stopped';

/** Delays between restarts of a command that keeps ending, from 1 s to 1 minute. */
const RESTART_BACKOFF = { baseMs: 1_000, maxMs: 60_000 } as const;
const STABLE_AFTER_MS = 60_000;

/** Runs one container's command by its restart policy. */
export class PodContainer {
  readonly #spec: ContainerSpec;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #onChange: () => void;
  readonly #backoff = new Backoff(RESTART_BACKOFF);
  #child: ChildProcess | null = null;
  #ended: Promise<void> = Promise.resolve();
  #timer: Timer | null = null;
  #startedAt = 0;
  #stopping = false;
  #state: ContainerState = 'backoff';

  constructor(
    spec: ContainerSpec,
    deps: { readonly clock: Clock; readonly log: Logger; readonly onChange: () => void },
  ) {
    this.#spec = spec;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#onChange = deps.onChange;
  }

  get state(): ContainerState {
    return this.#state;
  }

  /** Starts the command, unless a stop was requested. A log that cannot be opened counts as a failed run. */
  async start(): Promise<void> {
    try {
      await startLogged(this.#spec, (start) => {
        // A stop that came while the log was opened found no child to end.
        if (!this.#stopping) this.#follow(start());
      });
    } catch (error) {
      this.#decide(null, errorText(error));
    }
    this.#onChange();
  }

  #follow({ child, ended }: LoggedProcess): void {
    this.#child = child;
    this.#startedAt = this.#clock.monotonic();
    this.#state = 'running';
    this.#ended = ended.then(({ code, how }) => {
      this.#child = null;
      if (child.pid !== undefined) kill(-child.pid, 'SIGKILL');
      this.#decide(code, how);
      this.#onChange();
    });
  }

  #decide(code: number | null, how: string): void {
    const { restartPolicy } = this.#spec;
    if (this.#stopping) this.#state = 'stopped';
    else if (code === 0 && restartPolicy !== 'Always') this.#state = 'succeeded';
    else if (restartPolicy === 'Never') this.#state = 'failed';
    else {
      if (this.#clock.monotonic() - this.#startedAt >= STABLE_AFTER_MS) this.#backoff.reset();
      const delayMs = this.#backoff.next();
      this.#state = 'backoff';
      this.#log.info({ how, delayMs: Math.round(delayMs) }, 'container.restarting');
      this.#timer = this.#clock.after(delayMs, () => void this.start());
    }
  }

  /** Ends the command and everything in its process group: SIGTERM, then SIGKILL after `graceMs`. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    this.#timer?.cancel();
    const pid = this.#child?.pid;
    if (pid === undefined) {
      this.#state = 'stopped';
      return;
    }
    kill(-pid, 'SIGTERM');
    const force = this.#clock.after(graceMs, () => kill(-pid, 'SIGKILL'));
    await this.#ended;
    force.cancel();
  }
}

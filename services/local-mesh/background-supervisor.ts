/** Starts a supervisor as a process of its own, which outlives its caller. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { systemClock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { lastLinesOf } from './log-files.ts';
import { askStatus } from './mesh-client.ts';
import { logFile } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';

/** Time limit for the supervisor to have all processes running. */
const START_TIMEOUT_MS = 240_000;
const POLL_MS = 100;
/** The exit status of a process that refuses its configuration (EX_CONFIG of sysexits.h). */
const EXIT_CONFIG = 78;

/** A supervisor in the background. The owner leaves it. */
export class BackgroundSupervisor {
  readonly #paths: MeshPaths;
  readonly #child: ChildProcess;
  readonly #output: FileHandle;

  private constructor(paths: MeshPaths, child: ChildProcess, output: FileHandle) {
    this.#paths = paths;
    this.#child = child;
    this.#output = output;
  }

  /** Starts Node with the arguments of `weft up` that supervise. */
  static async start(
    paths: MeshPaths,
    parameters: readonly string[],
  ): Promise<BackgroundSupervisor> {
    mkdirSync(paths.logsDir, { recursive: true });
    // Keep the log open: the supervisor deletes the file when a start fails.
    const output = await open(logFile(paths, 'supervisor.out', null), 'a+', 0o640);
    const child = spawn(process.execPath, parameters, {
      detached: true,
      stdio: ['ignore', output.fd, output.fd],
      cwd: process.cwd(),
    });
    child.unref();
    return new BackgroundSupervisor(paths, child, output);
  }

  /** Resolves when all processes run, or when the signal aborts. Throws ACTOR_DEADLINE. */
  async started(signal: AbortSignal): Promise<void> {
    const end = systemClock.monotonic() + START_TIMEOUT_MS;
    while (!signal.aborted) {
      try {
        const status = await askStatus(this.#paths);
        if (status.started) return;
      } catch (error) {
        if (systemClock.monotonic() > end) throw error;
      }
      if (systemClock.monotonic() > end) {
        throw new MeshError('ACTOR_DEADLINE', 'the supervisor did not finish starting the mesh');
      }
      await systemClock.sleep(POLL_MS);
    }
  }

  /** Rejects when the supervisor ends, with the last lines of its log. */
  async ended(): Promise<never> {
    const [code] = (await once(this.#child, 'exit')) as [number | null];
    const lines = await lastLinesOf(this.#output, 5);
    const reason = lines.at(-1)?.replace(/^weft: /, '') ?? `status ${code ?? 'none'}`;
    for (const line of lines.slice(0, -1)) process.stderr.write(`${line}\n`);
    throw new MeshError(
      code === EXIT_CONFIG ? 'CONFIG_INVALID' : 'ACTOR_FAILED',
      `the supervisor ended: ${reason}`,
    );
  }

  /** Watches it no longer; it continues. */
  async leave(): Promise<void> {
    this.#child.removeAllListeners('exit');
    await this.#output.close();
  }
}

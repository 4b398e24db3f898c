/** Runs the programs of a cluster as children of this process. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { processEnvironment } from '../../../lib/config/env.ts';
import type { Environment } from '../../../lib/config/env.ts';

/** Lines of a log that tell why a program has ended. */
const LAST_LINES = 5;

/** A program to run. */
export interface ProgramOptions {
  readonly name: string;
  /** The command and its arguments. */
  readonly words: readonly string[];
  /** Gets the output, as `<name>.log`. */
  readonly folder: string;
  /** Path of the network namespace to run in. */
  readonly netns: string;
  readonly environment?: Environment;
}

/** A running program. It ends with this process. */
export class Program {
  readonly #name: string;
  readonly #log: string;
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;

  private constructor(name: string, log: string, child: ChildProcess) {
    this.#name = name;
    this.#log = log;
    this.#child = child;
    this.#ended = once(child, 'exit');
  }

  /** Starts a program. */
  static async start(options: ProgramOptions): Promise<Program> {
    const { name, words, folder, netns, environment } = options;
    const log = join(folder, `${name}.log`);
    const output = await open(log, 'a');
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', 'nsenter', `--net=${netns}`, ...words], {
      stdio: ['ignore', output.fd, output.fd],
      env: { ...processEnvironment(), ...environment },
    });
    const program = new Program(name, log, child);
    await once(child, 'spawn');
    await output.close();
    return program;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Throws what the program said last when it has ended. */
  async check(): Promise<void> {
    const { exitCode, signalCode } = this.#child;
    if (exitCode === null && signalCode === null) return;
    const lines = (await readFile(this.#log, 'utf8')).trim().split('\n').slice(-LAST_LINES);
    throw new Error(`${this.#name} ended with ${exitCode ?? signalCode}: ${lines.join(' | ')}`);
  }

  /** Kills it and waits for its end. Idempotent. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }
}

/** A control plane in a process of its own, on a real API server. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { userEnvironment } from '../support/user-environment.ts';
import type { Observed, ObservedRequest } from './observed.ts';

const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;
const OBSERVED = new URL('observed.ts', import.meta.url).href;
const KB_PER_MB = 1_024;
const MAX_PROBLEMS = 20;

/** Memory of a process as the kernel counts it. */
export interface Memory {
  readonly residentMb: number;
  /** The part that no other process shares. */
  readonly privateMb: number;
}

/** Reads the memory of a process. */
export async function memoryOf(pid: number): Promise<Memory> {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8');
  const kb = (name: string): number =>
    Number(new RegExp(`^${name}: +(\\d+) kB`, 'm').exec(text)?.[1] ?? Number.NaN);
  return {
    residentMb: kb('Rss') / KB_PER_MB,
    privateMb: (kb('Private_Clean') + kb('Private_Dirty')) / KB_PER_MB,
  };
}

/** The process. */
export class Plane {
  readonly startedAtMs = performance.now();
  readonly #process: ChildProcess;
  readonly #listening = Promise.withResolvers<number>();
  readonly #problems: string[] = [];
  #loaded = false;

  constructor(environment: Readonly<Record<string, string>>) {
    // It must not outlive this process, however that ends.
    const command = ['--pdeathsig', 'KILL', WEFT, 'run', 'control-plane'];
    this.#process = spawn('setpriv', command, {
      env: { ...userEnvironment(), ...environment, NODE_OPTIONS: `--import=${OBSERVED}` },
      stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    });
    const { stdout } = this.#process;
    if (stdout === null) throw new TypeError('the control plane has no output');
    createInterface({ input: stdout }).on('line', (line) => this.#read(line));
    this.#process.once('exit', (code, signal) =>
      this.#listening.reject(new Error(`the control plane ended with ${code ?? signal}`)),
    );
    this.#listening.promise.catch(() => undefined);
  }

  /** Resolves with the port once it serves clients. */
  listening(): Promise<number> {
    return this.#listening.promise;
  }

  /** Warnings and errors of its log so far. */
  get problems(): readonly string[] {
    return this.#problems;
  }

  /** Forgets the turns so far. */
  begin(): void {
    this.#process.send('begin' satisfies ObservedRequest);
  }

  /** The turns since {@link begin}, and what is used. */
  async report(): Promise<Observed> {
    const answer = once(this.#process, 'message');
    this.#process.send('report' satisfies ObservedRequest);
    const [observed] = (await answer) as [Observed];
    return observed;
  }

  memory(): Promise<Memory> {
    return memoryOf(this.#process.pid ?? 0);
  }

  async stop(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, 'exit');
    this.#process.kill();
    await ended;
  }

  #read(line: string): void {
    const { level, message, port, ...fields } = JSON.parse(line) as Record<string, unknown>;
    if (message === 'xds.listening') this.#listening.resolve(Number(port));
    // Everything before is the loading of code.
    if (!this.#loaded) this.begin();
    this.#loaded = true;
    if (level !== 'warn' && level !== 'error') return;
    if (this.#problems.length < MAX_PROBLEMS) {
      this.#problems.push(`${String(message)} ${JSON.stringify(fields)}`);
    }
  }
}

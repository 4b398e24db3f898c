/** Runs the load's own processes, and reads the cost of the mesh's. */
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { LoadAnswer, LoadMessage } from './messages.ts';

/** `sysconf(_SC_CLK_TCK)` of every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;

/** A client or a server. */
export class LoadProcess {
  readonly #child: ChildProcess;

  /** Starts the process. */
  constructor(kind: 'client' | 'server') {
    const program = new URL(`${kind}.ts`, import.meta.url).pathname;
    this.#child = fork(program, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  }

  /** Returns the process's id. */
  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Sends a message and waits for its answer, one at a time. Rejects when the process ends. */
  async ask(message: LoadMessage): Promise<LoadAnswer> {
    const answered = once(this.#child, 'message') as Promise<[LoadAnswer]>;
    const ended = once(this.#child, 'exit').then(([code]) => {
      throw new Error(`the load's process ended with ${String(code)}`);
    });
    this.#child.send(message);
    const [answer] = await Promise.race([answered, ended]);
    return answer;
  }

  /** Ends the process. */
  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill();
    await ended;
  }
}

/** CPU seconds since the start and resident bytes, summed over processes. */
export interface Cost {
  readonly cpuSeconds: number;
  readonly residentBytes: number;
}

/** Reads the cost of the processes so far. */
export async function costOf(pids: readonly number[]): Promise<Cost> {
  const costs = await Promise.all(pids.map(costOfOne));
  return {
    cpuSeconds: costs.reduce((sum, cost) => sum + cost.cpuSeconds, 0),
    residentBytes: costs.reduce((sum, cost) => sum + cost.residentBytes, 0),
  };
}

async function costOfOne(pid: number): Promise<Cost> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  // The name may contain spaces; fields are counted from the state after it.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const ticks = Number(fields[11]) + Number(fields[12]);
  const kib = Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]);
  return { cpuSeconds: ticks / TICKS_PER_SECOND, residentBytes: kib * 1_024 };
}

/** Returns the value below which `share` of the sorted values lie. */
export function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

/** Runs programs in network namespaces and reads their resource use. */
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile, readdir } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Larger output is a fault of the program, not a result. */
const OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024;

/** Runs a program and returns its output. Rejects with its error output when it fails. */
export async function output(command: string, args: readonly string[]): Promise<string> {
  const { stdout } = await run(command, [...args], { maxBuffer: OUTPUT_LIMIT_BYTES });
  return stdout;
}

/** Runs a program inside a network namespace and returns its output. */
export function inNamespace(netns: string, command: string, ...args: string[]): Promise<string> {
  return output('nsenter', [`--net=${netns}`, command, ...args]);
}

/** A program that serves until it is stopped. */
export interface Background {
  readonly pid: number;
  stop(): Promise<void>;
}

/** Starts a server inside a network namespace; its errors go to this process's standard error. */
export function serve(netns: string, command: string, ...args: string[]): Background {
  return background(netns, command, args, false);
}

/**
 * Starts a server in a session of its own, like an actor. The kernel divides processor time by session (`sched_autogroup`): a
 * server in the generators' session took a tenth less of it per byte.
 */
export function serveApart(netns: string, command: string, ...args: string[]): Background {
  return background(netns, command, args, true);
}

function background(
  netns: string,
  command: string,
  args: readonly string[],
  detached: boolean,
): Background {
  const child: ChildProcess = spawn('nsenter', [`--net=${netns}`, command, ...args], {
    stdio: ['ignore', 'ignore', 'inherit'],
    detached,
  });
  const closed = once(child, 'close');
  return {
    pid: child.pid ?? 0,
    async stop() {
      child.kill('SIGTERM');
      await closed;
    },
  };
}

/** Reads the resident memory of a process in bytes. */
export async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
  if (kib === undefined) throw new Error(`process ${pid} has no VmRSS`);
  return Number(kib) * 1024;
}

/** Ticks of the kernel's processor times in a second (USER_HZ). */
const TICKS_PER_SECOND = 100;

/** Processor seconds of a process or thread, outside and inside of system calls. */
export interface ProcessorTime {
  readonly user: number;
  readonly system: number;
}

/** Reads the processor seconds that processes have taken so far. */
export async function processorSeconds(pids: readonly number[]): Promise<number> {
  let seconds = 0;
  for (const pid of pids) {
    const { user, system } = await processorTime(`/proc/${pid}/stat`);
    seconds += user + system;
  }
  return seconds;
}

/** Reads what a process's threads of a name have taken so far, all together. */
export async function threadTime(pid: number, name: string): Promise<ProcessorTime> {
  let user = 0;
  let system = 0;
  for (const thread of await readdir(`/proc/${pid}/task`)) {
    const directory = `/proc/${pid}/task/${thread}`;
    if ((await readFile(`${directory}/comm`, 'utf8')).trim() !== name) continue;
    const time = await processorTime(`${directory}/stat`);
    user += time.user;
    system += time.system;
  }
  return { user, system };
}

async function processorTime(file: string): Promise<ProcessorTime> {
  const stat = await readFile(file, 'utf8');
  // The name in parentheses may contain anything.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return {
    user: Number(fields[11]) / TICKS_PER_SECOND,
    system: Number(fields[12]) / TICKS_PER_SECOND,
  };
}

/** Memory of a process in bytes, as the kernel counts it. */
export interface Memory {
  readonly resident: number;
  /** Resident, with each shared page divided by the processes that share it. */
  readonly proportional: number;
  /** Pages of no other process. */
  readonly own: number;
}

/** Reads the memory of a process. */
export async function memoryOf(pid: number): Promise<Memory> {
  const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8');
  const bytes = (name: string): number => {
    const kib = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(rollup)?.[1];
    if (kib === undefined) throw new Error(`process ${pid} has no ${name}`);
    return Number(kib) * 1024;
  };
  return {
    resident: bytes('Rss'),
    proportional: bytes('Pss'),
    own: bytes('Private_Clean') + bytes('Private_Dirty'),
  };
}

/** Resolves when `probe` succeeds; rejects with its last error after `timeoutMs`. */
export async function eventually<T>(
  what: string,
  timeoutMs: number,
  probe: () => Promise<T>,
): Promise<T> {
  const end = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await probe();
    } catch (error) {
      if (performance.now() > end) throw new Error(`${what} did not happen`, { cause: error });
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

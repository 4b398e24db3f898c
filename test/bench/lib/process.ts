/** Programs run in network namespaces, and what they use. */
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Output larger than this is a mistake of the program, not a result. */
const OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024;

/** What a finished program printed. Rejects with its error output when it failed. */
export async function output(command: string, args: readonly string[]): Promise<string> {
  const { stdout } = await run(command, [...args], { maxBuffer: OUTPUT_LIMIT_BYTES });
  return stdout;
}

/** Runs a program inside a network namespace and returns what it printed. */
export function inNamespace(netns: string, command: string, ...args: string[]): Promise<string> {
  return output('nsenter', [`--net=${netns}`, command, ...args]);
}

/** A program that serves until it is stopped. */
export interface Background {
  readonly pid: number;
  stop(): Promise<void>;
}

/** Starts a server inside a network namespace; its complaints go to this process's standard error. */
export function serve(netns: string, command: string, ...args: string[]): Background {
  return background(netns, command, args, false);
}

/**
 * The same in a session of its own, as actors are: the kernel shares processor time out by session (`sched_autogroup`), and whoever
 * shares one with the generators was seen to take a tenth less of it for a byte.
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

/** Resident memory of a process in bytes. */
export async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
  if (kib === undefined) throw new Error(`process ${pid} has no VmRSS`);
  return Number(kib) * 1024;
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

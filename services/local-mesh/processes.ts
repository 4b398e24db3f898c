/** Processes by pid and start time, so that a reused pid is never taken for the old process. */
import { readFile, readdir, readlink, stat } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import { ifExists } from '../../lib/files/atomic-file.ts';

/** A killed process ends within this time, unless it hangs in the kernel. */
const KILL_TIMEOUT_MS = 5_000;
const POLL_MS = 25;

/** Identifies one process until the machine restarts. */
export interface ProcessId {
  readonly pid: number;
  /** Clock ticks since boot, field 22 of /proc/<pid>/stat. */
  readonly startTime: string;
}

/** Reads the id of a running process; null when there is none (zombies count as none). */
export async function processId(pid: number): Promise<ProcessId | null> {
  let line: string;
  try {
    line = await readFile(`/proc/${pid}/stat`, 'utf8');
  } catch {
    // The process is absent, or it ended while it was read.
    return null;
  }
  const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
  const state = fields[0];
  const startTime = fields[19];
  if (startTime === undefined || state === 'Z' || state === 'X') return null;
  return { pid, startTime };
}

/** Whether this very process still runs. */
export async function isRunning(id: ProcessId): Promise<boolean> {
  return (await processId(id.pid))?.startTime === id.startTime;
}

/** Sends a signal to this very process; false when it has ended. */
export async function signalProcess(id: ProcessId, signal: NodeJS.Signals): Promise<boolean> {
  if (!(await isRunning(id))) return false;
  return kill(id.pid, signal);
}

/** `process.kill` that returns false for "no such process". Negative pids name process groups. */
export function kill(pid: number, signal: NodeJS.Signals): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

/** A kind of namespace, as /proc names it. */
export type NamespaceKind = 'net' | 'mnt';

/** The processes that live in any of the namespaces held by the files at `paths`; absent files hold none. */
export async function processesIn(
  kind: NamespaceKind,
  paths: readonly string[],
): Promise<ProcessId[]> {
  const wanted = new Set<string>();
  for (const path of paths) {
    const inode = await namespaceInode(path);
    if (inode !== null) wanted.add(inode);
  }
  if (wanted.size === 0) return [];
  const found: ProcessId[] = [];
  for (const entry of await readdir('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const inode = await processNamespace(kind, entry);
    if (inode === null || !wanted.has(inode)) continue;
    const id = await processId(Number(entry));
    if (id !== null) found.push(id);
  }
  return found;
}

async function namespaceInode(path: string): Promise<string | null> {
  const found = await ifExists(stat(path, { bigint: true }));
  return found === null ? null : String(found.ino);
}

async function processNamespace(kind: NamespaceKind, pid: string): Promise<string | null> {
  try {
    return /^\w+:\[(\d+)\]$/.exec(await readlink(`/proc/${pid}/ns/${kind}`))?.[1] ?? null;
  } catch {
    // The process has ended, is a kernel thread, or belongs to another user.
    return null;
  }
}

/**
 * Ends every process in the namespaces held by the files at `paths`, except this one: SIGTERM, then SIGKILL
 * after `graceMs`. Resolves with their number.
 */
export async function endProcesses(
  kind: NamespaceKind,
  paths: readonly string[],
  graceMs: number,
): Promise<number> {
  const first = await processesIn(kind, paths);
  if (first.length === 0) return 0;
  await signalAll(first, 'SIGTERM', graceMs);
  // A process may start another one between the look and its signal; the second round finds that one.
  for (let round = 0; round < 2; round += 1) {
    await signalAll(await processesIn(kind, paths), 'SIGKILL', KILL_TIMEOUT_MS);
  }
  return first.length;
}

async function signalAll(
  processes: readonly ProcessId[],
  signal: NodeJS.Signals,
  waitMs: number,
): Promise<void> {
  const others = processes.filter(({ pid }) => pid !== process.pid);
  for (const id of others) await signalProcess(id, signal);
  const end = performance.now() + waitMs;
  for (const id of others) {
    while ((await isRunning(id)) && performance.now() < end) await wait(POLL_MS);
  }
}

import { setTimeout as wait } from 'node:timers/promises';
import { isRunning, processesIn, signalProcess } from './processes.ts';
import type { NamespaceKind, ProcessId } from './processes.ts';

/** A killed process is gone within this, or hangs in the kernel and stays. */
const KILL_TIMEOUT_MS = 5_000;
const POLL_MS = 25;

/**
 * Ends every process in the namespaces held by the files at `paths`, except this one: SIGTERM, then SIGKILL
 * after `graceMs`. Resolves with how many there were.
 */
export async function endProcesses(
  kind: NamespaceKind,
  paths: readonly string[],
  graceMs: number,
): Promise<number> {
  const first = await processesIn(kind, paths);
  if (first.length === 0) return 0;
  await signalAll(first, 'SIGTERM', graceMs);
  // Anything that started meanwhile goes as well; killing ends the game, so a second round suffices.
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

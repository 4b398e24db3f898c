/** Ends a mesh from outside its supervisor's process. */
import { setTimeout as wait } from 'node:timers/promises';
import { systemClock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { cleanUp } from './cleanup.ts';
import { askDown } from './mesh-client.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { liveRecord } from './mesh-record.ts';
import { isRunning, signalProcess } from './processes.ts';
import type { ProcessId } from './processes.ts';

/** A supervisor that has not gone by then is killed; what it leaves is removed all the same. */
const SUPERVISOR_TIMEOUT_MS = 20_000;
const POLL_MS = 50;

/**
 * Asks the supervisor to take the mesh down, waits for its end and removes whatever is left by name. False
 * when there was nothing.
 */
export async function takeDown(paths: MeshPaths): Promise<boolean> {
  const record = await liveRecord(paths);
  if (record !== null) {
    try {
      await askDown(paths);
    } catch (error) {
      if (!(error instanceof MeshError) || error.code === 'STATE_CONFLICT') throw error;
      // It does not answer any more: the signal is the other way to say it.
      await signalProcess(record.supervisor, 'SIGTERM');
    }
    await ended(record.supervisor);
  }
  const left = await cleanUp(paths);
  return record !== null || left.namespaces > 0 || left.files;
}

async function ended(supervisor: ProcessId): Promise<void> {
  const end = systemClock.monotonic() + SUPERVISOR_TIMEOUT_MS;
  while (await isRunning(supervisor)) {
    if (systemClock.monotonic() > end) {
      await signalProcess(supervisor, 'SIGKILL');
      return;
    }
    await wait(POLL_MS);
  }
}

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

/** A supervisor that has not ended after this time is killed; its remains are removed by name. */
const SUPERVISOR_TIMEOUT_MS = 20_000;
const POLL_MS = 50;

/**
 * Asks the supervisor to take the mesh down, waits for its end, and removes remains by name. False when there was
 * nothing to remove.
 */
export async function takeDown(paths: MeshPaths): Promise<boolean> {
  const record = await liveRecord(paths);
  if (record !== null) {
    try {
      await askDown(paths);
    } catch (error) {
      if (!(error instanceof MeshError) || error.code === 'STATE_CONFLICT') throw error;
      // The supervisor does not answer; SIGTERM asks it for the same.
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

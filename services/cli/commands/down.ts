import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { processEnvironment } from '../../../lib/config/env.ts';
import { cleanUp } from '../local/cleanup.ts';
import { askDown } from '../local/mesh-client.ts';
import { meshPaths } from '../local/mesh-paths.ts';
import { liveRecord } from '../local/mesh-record.ts';
import { isRunning, signalProcess } from '../local/processes.ts';
import type { ProcessId } from '../local/processes.ts';

/** A supervisor that has not gone by then is killed; what it leaves is removed all the same. */
const SUPERVISOR_TIMEOUT_MS = 20_000;

/** Adds `weft down`. */
export function register(program: Command): void {
  program
    .command('down')
    .description('stop everything a local mesh started and remove all it made; may be repeated')
    .option('--mesh <name>', 'name of the mesh (default: weft)')
    .action(down);
}

async function down(options: { readonly mesh?: string }): Promise<void> {
  const paths = meshPaths(options.mesh, processEnvironment());
  const record = await liveRecord(paths);
  if (record !== null) {
    try {
      await askDown(paths);
    } catch {
      // It hangs or is about to end: the signal below does.
      await signalProcess(record.supervisor, 'SIGTERM');
    }
    await ended(record.supervisor);
  }
  const left = await cleanUp(paths);
  const had = record !== null || left.namespaces > 0 || left.files;
  process.stderr.write(`weft: mesh ${paths.mesh} ${had ? 'is down' : 'was not up'}\n`);
}

async function ended(supervisor: ProcessId): Promise<void> {
  const end = systemClock.monotonic() + SUPERVISOR_TIMEOUT_MS;
  while (await isRunning(supervisor)) {
    if (systemClock.monotonic() > end) {
      await signalProcess(supervisor, 'SIGKILL');
      return;
    }
    await systemClock.sleep(50);
  }
}

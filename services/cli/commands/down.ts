import { setTimeout as wait } from 'node:timers/promises';
import type { Command } from 'commander';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { cleanUp } from '../local/cleanup.ts';
import { meshPaths } from '../local/mesh-paths.ts';
import { liveRecord } from '../local/mesh-record.ts';
import type { MeshRecord } from '../local/mesh-record.ts';
import type { MeshPaths } from '../local/mesh-paths.ts';
import { isRunning, signalProcess } from '../local/processes.ts';
import { ask } from '../local/unix-http.ts';
import type { CommandContext } from '../main.ts';
import { meshOption, tell } from '../output.ts';

/** Actors drain for 5 s at most; a supervisor that takes longer than this is ended by force. */
const SUPERVISOR_TIMEOUT_MS = 30_000;
const POLL_MS = 25;

/** `weft down`. */
export function addDown(program: Command, context: CommandContext): void {
  program
    .command('down')
    .description('end the local mesh and remove everything it made; fine when there is none')
    .addOption(meshOption())
    .action(async (options: { mesh?: string }) => {
      const paths = meshPaths(options.mesh, context.environment);
      const record = await liveRecord(paths);
      if (record !== null) await endSupervisor(paths, record);
      const report = await cleanUp(paths);
      const found = record !== null || report.namespaces > 0 || report.files;
      tell(found ? `mesh ${paths.mesh} is down` : `mesh ${paths.mesh} is not running; nothing to do`);
    });
}

async function endSupervisor(paths: MeshPaths, record: MeshRecord): Promise<void> {
  try {
    await ask({ socket: paths.supervisorSocket, method: 'POST', path: '/down' });
  } catch (error) {
    if (!(error instanceof MeshError)) throw error;
    // Not listening (yet, or any more): its signal handler does the same.
    await signalProcess(record.supervisor, 'SIGTERM');
  }
  const end = performance.now() + SUPERVISOR_TIMEOUT_MS;
  while (await isRunning(record.supervisor)) {
    if (performance.now() > end) {
      tell('the supervisor does not end; it is killed and the rest removed');
      await signalProcess(record.supervisor, 'SIGKILL');
      break;
    }
    await wait(POLL_MS);
  }
}

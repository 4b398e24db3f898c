import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ifExists } from '../../../lib/files/atomic-file.ts';
import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { processEnvironment } from '../../../lib/config/env.ts';
import { meshPaths } from '../../local-mesh/mesh-paths.ts';
import { requireMesh } from '../../local-mesh/mesh-record.ts';
import { chooseLogs } from '../log-choice.ts';
import { LogFollower } from '../log-follower.ts';
import { isCluster } from '../open-mesh.ts';
import { readsMesh, write } from '../output.ts';
import type { CommonOptions } from '../output.ts';

/** Interval between reads of followed logs. */
const FOLLOW_POLL_MS = 200;

interface LogsOptions extends CommonOptions {
  readonly follow?: boolean;
}

/** Adds `weft logs`. */
export function register(command: Command): void {
  readsMesh(command)
    .argument('[actor]', '<actor> on every node, <node>/<actor> or <actor>.<node>; default all')
    .option('-f, --follow', 'print new lines until the mesh is down')
    .action(logs);
}

async function logs(wanted: string | undefined, options: LogsOptions): Promise<void> {
  if (await isCluster(options)) {
    const [{ withClusterMesh }, { printLogs }] = await Promise.all([
      import('../cluster/cluster-mesh.ts'),
      import('../cluster/cluster-logs.ts'),
    ]);
    await withClusterMesh(options, (mesh) => printLogs(mesh, wanted, options.follow === true));
    return;
  }
  const paths = meshPaths(options.mesh, processEnvironment());
  let names = await ifExists(readdir(paths.logsDir));
  // Without a mesh and without logs of an earlier one, this throws the error that says how to start it.
  if (names === null) await requireMesh(paths);
  const chosen = chooseLogs(names ?? [], wanted);
  const single = chosen.length === 1 && wanted !== undefined;
  const followers = chosen.map(
    ({ process, file }) =>
      new LogFollower(join(paths.logsDir, file), (lines) =>
        write(single ? lines : prefixed(process, lines)),
      ),
  );
  for (;;) {
    for (const follower of followers) await follower.poll();
    names = await ifExists(readdir(paths.logsDir));
    if (options.follow !== true || names === null) break;
    await systemClock.sleep(FOLLOW_POLL_MS);
  }
  for (const follower of followers) await follower.flush();
}

function prefixed(process: string, lines: Buffer): string {
  return lines
    .toString('utf8')
    .replace(/\n$/, '')
    .split('\n')
    .map((line) => `${process} | ${line}\n`)
    .join('');
}

import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { processEnvironment } from '../../../lib/config/env.ts';
import { replaceFile } from '../../../lib/files/atomic-file.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import { givenFiles, givenPath } from '../../container-mesh/own-files.ts';
import { meshPaths, podRecordsDir } from '../../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../../local-mesh/mesh-paths.ts';
import { parseNodeCount } from '../../local-mesh/mesh-request.ts';
import { writeRedisFiles } from '../../local-mesh/redis.ts';
import { TokenIssuer } from '../../local-mesh/tokens.ts';
import { planMesh } from '../../local-mesh/topology.ts';
import type { MeshPlan } from '../../local-mesh/topology.ts';

/** Group-readable: the root actors have no capability to read other users' files, but share the group. */
const GIVEN_MODE = 0o640;

interface Options {
  readonly mesh?: string;
  readonly nodes?: string;
  readonly redisDir?: string;
  readonly give?: string;
  readonly done?: string;
}

/** Adds `weft prepare`: the part of `weft up` that containers cannot do for themselves. */
export function register(program: Command): void {
  program
    .command('prepare', { hidden: true })
    .description('write Redis users, configuration and tokens to the run directory; renew tokens')
    .option('--mesh <name>', 'name of the mesh')
    .option('--nodes <n>', 'number of nodes (default: 2)')
    .option('--redis-dir <folder>', "Redis's own files, apart from its socket")
    .option('--give <folder>', "copy each role's secrets to its own folder in this one")
    .option('--done <file>', 'write this file when everything is written')
    .action(prepare);
}

async function prepare(options: Options): Promise<void> {
  const paths = meshPaths(options.mesh, processEnvironment());
  const plan = planMesh(paths.mesh, parseNodeCount(options.nodes));
  const log = createLogger({ actor: 'prepare' });
  const stopped = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]);
  for (const node of plan.nodes) {
    await mkdir(podRecordsDir(paths, node.name), { recursive: true });
  }
  const directory = options.redisDir === undefined ? {} : { directory: options.redisDir };
  await writeRedisFiles(plan, paths, { ...directory, groupAccess: true });
  const { give } = options;
  const issuer = new TokenIssuer(plan, paths, {
    clock: systemClock,
    log,
    groupReads: true,
    onMinted: () => (give === undefined ? Promise.resolve() : giveFiles(plan, paths, give)),
  });
  await issuer.start();
  if (options.done !== undefined) await writeFile(options.done, '');
  log.info({ root: paths.root, nodes: plan.nodes.length }, 'mesh.prepared');
  const alive = setInterval(() => {}, 1 << 30);
  await stopped;
  clearInterval(alive);
  issuer.stop();
}

/** Replaces each file atomically, because its readers may read at any time. */
async function giveFiles(plan: MeshPlan, paths: MeshPaths, directory: string): Promise<void> {
  for (const file of givenFiles(plan, paths)) {
    await replaceFile(givenPath(directory, file), await readFile(file.from, 'utf8'), GIVEN_MODE);
  }
}

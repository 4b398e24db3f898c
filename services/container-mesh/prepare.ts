/** Does the part of `weft up` that containers cannot do for themselves. */
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { systemClock } from '../../lib/clock/clock.ts';
import { replaceFile } from '../../lib/files/atomic-file.ts';
import { createLogger } from '../../lib/log/logger.ts';
import { podRecordsDir } from '../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { writeRedisFiles } from '../local-mesh/redis.ts';
import { TokenIssuer } from '../local-mesh/tokens.ts';
import type { MeshPlan } from '../local-mesh/topology.ts';
import { givenFiles, givenPath } from './own-files.ts';

/** Group-readable: the root actors have no capability to read other users' files, but share the group. */
const GIVEN_MODE = 0o640;

/** Where {@link prepareMesh} writes, besides the run directory. */
export interface PreparedPlaces {
  /** The folder of Redis's own files, apart from its socket. */
  readonly redisDir?: string;
  /** The folder that gets one folder for each role, with a copy of its secrets. */
  readonly give?: string;
  /** The file that is written when everything else is. */
  readonly done?: string;
}

/** Writes the users and the configuration of Redis and tokens, and renews the tokens until SIGTERM or SIGINT. */
export async function prepareMesh(
  plan: MeshPlan,
  paths: MeshPaths,
  { redisDir, give, done }: PreparedPlaces,
): Promise<void> {
  const log = createLogger({ actor: 'prepare' });
  const stopped = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]);
  for (const node of plan.nodes) {
    await mkdir(podRecordsDir(paths, node.name), { recursive: true });
  }
  await writeRedisFiles(plan, paths, { directory: redisDir, groupAccess: true });
  const issuer = new TokenIssuer(plan, paths, {
    clock: systemClock,
    log,
    groupReads: true,
    onMinted: () => (give === undefined ? Promise.resolve() : giveFiles(plan, paths, give)),
  });
  await issuer.start();
  if (done !== undefined) await writeFile(done, '');
  log.info({ root: paths.root, nodes: plan.nodes.length }, 'mesh.prepared');
  const alive = setInterval(() => {}, 1 << 30);
  await stopped;
  clearInterval(alive);
  await issuer.stop();
}

/** Replaces each file atomically, because its readers may read at any time. */
async function giveFiles(plan: MeshPlan, paths: MeshPaths, directory: string): Promise<void> {
  for (const file of givenFiles(plan, paths)) {
    await replaceFile(givenPath(directory, file), await readFile(file.from, 'utf8'), GIVEN_MODE);
  }
}

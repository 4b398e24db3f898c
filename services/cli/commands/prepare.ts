import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { processEnvironment } from '../../../lib/config/env.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import { meshPaths, podRecordsDir } from '../local/mesh-paths.ts';
import { parseNodeCount } from '../local/mesh-request.ts';
import { writeRedisFiles } from '../local/redis.ts';
import { TokenIssuer } from '../local/tokens.ts';
import { planMesh } from '../local/topology.ts';

/** Adds `weft prepare`: the part of `weft up` that containers, which supervise themselves, cannot do alone. */
export function register(program: Command): void {
  program
    .command('prepare', { hidden: true })
    .description('write Redis users, configuration and tokens to the run directory; renew tokens')
    .option('--mesh <name>', 'name of the mesh')
    .option('--nodes <n>', 'number of nodes (default: 2)')
    .action(prepare);
}

async function prepare(options: {
  readonly mesh?: string;
  readonly nodes?: string;
}): Promise<void> {
  const paths = meshPaths(options.mesh, processEnvironment());
  const plan = planMesh(paths.mesh, parseNodeCount(options.nodes));
  const log = createLogger({ actor: 'prepare' });
  const stopped = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]);
  for (const node of plan.nodes) {
    await mkdir(podRecordsDir(paths, node.name), { recursive: true });
  }
  await writeRedisFiles(plan, paths, true);
  const issuer = new TokenIssuer(plan, paths, { clock: systemClock, log, groupReads: true });
  // Last, as the key set is what the containers' health check looks for.
  await issuer.start();
  log.info({ root: paths.root, nodes: plan.nodes.length }, 'mesh.prepared');
  const alive = setInterval(() => {}, 1 << 30);
  await stopped;
  clearInterval(alive);
  issuer.stop();
}

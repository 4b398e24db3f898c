import type { Command } from 'commander';
import { processEnvironment } from '../../../lib/config/env.ts';
import { meshPaths } from '../../local-mesh/mesh-paths.ts';
import { takeDown } from '../../local-mesh/take-down.ts';
import { meshOption } from '../output.ts';

/** Adds `weft down`. */
export function register(command: Command): void {
  command.addOption(meshOption()).action(down);
}

async function down(options: { readonly mesh?: string }): Promise<void> {
  const paths = meshPaths(options.mesh, processEnvironment());
  const had = await takeDown(paths);
  process.stderr.write(`weft: mesh ${paths.mesh} ${had ? 'is down' : 'was not up'}\n`);
}

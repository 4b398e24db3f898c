import type { Command } from 'commander';
import { askStatus } from '../../local-mesh/mesh-client.ts';
import { statusLines } from '../status-lines.ts';
import { meshOption, outputOption, write, writeJson } from '../output.ts';
import type { CommonOptions } from '../output.ts';
import { openMesh } from '../running-mesh.ts';

/** Adds `weft status`. */
export function register(program: Command): void {
  program
    .command('status')
    .description('nodes, actors and Redis of a local mesh, and whether it is ready')
    .addOption(meshOption())
    .addOption(outputOption())
    .action(status);
}

async function status(options: CommonOptions): Promise<void> {
  const { paths } = await openMesh(options.mesh);
  const answer = await askStatus(paths);
  if (options.output === 'json') await writeJson(answer);
  else await write(`${statusLines(answer).join('\n')}\n`);
}

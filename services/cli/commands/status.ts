import type { Command } from 'commander';
import { askStatus } from '../../local-mesh/mesh-client.ts';
import { statusLines } from '../status-lines.ts';
import { UsageError } from '../../../lib/errors/usage-error.ts';
import { openMesh } from '../running-mesh.ts';

/** Adds `weft status`. */
export function register(program: Command): void {
  program
    .command('status')
    .description('nodes, actors and Redis of a local mesh, and whether it is ready')
    .option('--mesh <name>', 'name of the mesh (default: weft)')
    .option('-o, --output <format>', 'json prints the shape described in docs/cli.md')
    .action(status);
}

async function status(options: {
  readonly mesh?: string;
  readonly output?: string;
}): Promise<void> {
  if (options.output !== undefined && options.output !== 'json') {
    throw new UsageError(`-o must be json, got ${options.output}`);
  }
  const { paths } = await openMesh(options.mesh);
  const answer = await askStatus(paths);
  const text =
    options.output === 'json' ? JSON.stringify(answer, null, 2) : statusLines(answer).join('\n');
  process.stdout.write(`${text}\n`);
}

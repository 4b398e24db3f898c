import type { Command } from 'commander';
import { execInContainer } from '../../container-mesh/exec.ts';

/** Adds `weft container-exec`, by which `weft exec` and `weft trace` enter a pod that is a container. */
export function register(command: Command): void {
  command
    .requiredOption('--engine <socket>', 'unix socket of the Docker engine')
    .argument('<container>', 'its id')
    .argument('<command...>', 'the command and its arguments, after --')
    .action(exec);
}

async function exec(
  id: string,
  command: readonly string[],
  { engine }: { readonly engine: string },
): Promise<void> {
  process.exitCode = await execInContainer({ socket: engine, id, command });
}

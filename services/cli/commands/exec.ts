import type { Command } from 'commander';
import { askPods } from '../../local-mesh/mesh-client.ts';
import { meshOption } from '../output.ts';
import { parsePod } from '../references.ts';
import { runForeground } from '../run-foreground.ts';
import { enterPod, openMesh, requirePod } from '../running-mesh.ts';

const HELP = `
Standard input, output and errors, signals and the exit status are the command's own (128+n when signal n ended it).`;

/** Adds `weft exec`. */
export function register(command: Command): void {
  command
    .usage('[options] <namespace>/<pod> -- <command...>')
    .argument('<pod>', '<namespace>/<pod>')
    .argument('<command...>', 'the command and its arguments, after --')
    .addOption(meshOption())
    .addHelpText('after', HELP)
    .action(exec);
}

async function exec(
  pod: string,
  command: readonly string[],
  options: { readonly mesh?: string },
): Promise<void> {
  const wanted = parsePod('the pod', pod);
  const { paths } = await openMesh(options.mesh);
  const found = requirePod(await askPods(paths), wanted);
  process.exitCode = await runForeground([...enterPod(paths, found, 'application'), ...command]);
}

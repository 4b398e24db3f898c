import type { Command } from 'commander';
import { processEnvironment } from '../../../lib/config/env.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { enterPod } from '../enter-pod.ts';
import { askPods } from '../../local-mesh/mesh-client.ts';
import { meshPaths } from '../../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../../local-mesh/mesh-paths.ts';
import { requireMesh } from '../../local-mesh/mesh-record.ts';
import { meshOption } from '../output.ts';
import { parsePod } from '../references.ts';
import type { ObjectReference } from '../references.ts';
import { runForeground } from '../run-foreground.ts';

const HELP = `
Standard input, output and errors, signals and the exit status are the command's own (128+n when signal n ended it).`;

/** Adds `weft exec`. */
export function register(program: Command): void {
  program
    .command('exec')
    .description("run a command in a pod's namespaces")
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
  const reference = parsePod('the pod', pod);
  const paths = meshPaths(options.mesh, processEnvironment());
  await requireMesh(paths);
  const enter = await entryOf(paths, reference);
  process.exitCode = await runForeground([...enter, ...command]);
}

/** The command line that enters the pod. Throws STATE_UNAVAILABLE that names a pod nobody runs. */
async function entryOf(paths: MeshPaths, pod: ObjectReference): Promise<readonly string[]> {
  const pods = await askPods(paths);
  const found = pods.find(
    ({ namespace, name }) => namespace === pod.namespace && name === pod.name,
  );
  if (found === undefined) {
    throw new MeshError(
      'STATE_UNAVAILABLE',
      `no pod ${pod.namespace}/${pod.name} runs in mesh ${paths.mesh}; see: weft get pods`,
    );
  }
  return enterPod(paths, found, 'application');
}

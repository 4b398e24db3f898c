import type { Command } from 'commander';
import { processEnvironment } from '../../../lib/config/env.ts';
import { ACTORS, NODE_GROUP, expandActors, loadActor } from '../actors.ts';

const HELP = `
Actors: ${ACTORS.join(', ')}
Group: node = ${NODE_GROUP.join(', ')}
Configuration comes from the environment, with upstream's names where upstream has one; what it lacks may stand in the
file of --config. Exit status 78 lists what is wrong with it.`;

/** Adds `weft run`. */
export function register(program: Command): void {
  program
    .command('run')
    .description('host actors in this process until SIGTERM or SIGINT')
    .argument('<actors...>', 'names of actors, or the group node')
    .option(
      '--config <file>',
      'YAML or JSON map of variable names to values; the environment goes before it',
    )
    .addHelpText('after', HELP)
    .action(run);
}

async function run(names: readonly string[], options: { readonly config?: string }): Promise<void> {
  const actors = expandActors(names);
  const [{ runActors }, { hostConfig }, { readConfigFile }] = await Promise.all([
    import('../../../lib/actor/run-actors.ts'),
    import('../../../lib/actor/host-config.ts'),
    import('../config-file.ts'),
  ]);
  const definitions = await Promise.all(actors.map(loadActor));
  const known = [hostConfig, ...definitions.map((definition) => definition.config)].flatMap(
    (spec) => Object.keys(spec.variables),
  );
  const file = options.config === undefined ? {} : await readConfigFile(options.config, known);
  process.exitCode = await runActors(definitions, { ...file, ...processEnvironment() });
}

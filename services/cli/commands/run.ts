import type { Command } from 'commander';
import { processEnvironment } from '../../../lib/config/env.ts';
import { ACTORS, NODE_GROUP, expandActors, loadActor } from '../../local-mesh/actors.ts';
import { write } from '../output.ts';
import { settingsText } from '../settings.ts';
import { UsageError } from '../../../lib/errors/usage-error.ts';

const HELP = `
Actors: ${ACTORS.join(', ')}
Group: node = ${NODE_GROUP.join(', ')}
Configuration comes from the environment, with upstream's names where upstream has one; what it lacks may stand in the
file of --config. Exit status 78 lists what is wrong with it. With names, --help lists what they read.`;

/** Adds `weft run`. */
export function register(command: Command): void {
  command
    .argument('[actors...]', 'names of actors, or the group node')
    .option(
      '--config <file>',
      'YAML or JSON map of variable names to values; the environment has precedence',
    )
    .addHelpText('after', HELP)
    // Replaces the parser's help option, which would end the command before the named actors are known.
    .helpOption(false)
    .option('-h, --help', 'show help, and the variables of the actors named')
    .action((names: readonly string[], options: Options) =>
      options.help === true ? help(names, command) : run(names, options),
    );
}

interface Options {
  readonly config?: string;
  readonly help?: boolean;
}

async function help(names: readonly string[], command: Command): Promise<void> {
  command.outputHelp();
  const actors = expandActors(names);
  if (actors.length > 0) await write(`\n${await settingsText(actors)}`);
}

async function run(names: readonly string[], options: Options): Promise<void> {
  if (names.length === 0) throw new UsageError("missing required argument 'actors'");
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

import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { parse } from 'yaml';
import { z } from 'zod';
import { runActors } from '../../../lib/actor/run-actors.ts';
import { configInvalid } from '../../../lib/config/define-config.ts';
import type { Environment } from '../../../lib/config/env.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { ACTORS, NODE_GROUP, expandActors, loadActor } from '../actors.ts';
import type { CommandContext } from '../main.ts';

const HELP = `
Actors: ${ACTORS.join(', ')}
Group: node = ${NODE_GROUP.join(', ')}
Configuration comes from the environment, with upstream's names where upstream has one; --config names a YAML or
JSON file that maps variable names to values, which the environment overrides. Exit status 78 lists what is wrong.`;

/** `weft run`. */
export function addRun(program: Command, context: CommandContext): void {
  program
    .command('run')
    .description('host one or several actors in this process until SIGTERM')
    .argument('<actor...>', 'names of actors, or the group node')
    .option('--config <file>', 'variables by name, in YAML or JSON')
    .addHelpText('after', HELP)
    .action(async (names: string[], options: { config?: string }) => {
      const actors = expandActors(names);
      const file = options.config === undefined ? {} : await readVariables(options.config);
      const definitions = await Promise.all(actors.map(loadActor));
      context.exit(await runActors(definitions, { ...file, ...context.environment }));
    });
}

const scalar = z.union([z.string(), z.number(), z.boolean()]).transform(String);
const fileSchema = z.record(z.string(), scalar);

/** Reads a map of variables. Throws CONFIG_INVALID naming the file. */
async function readVariables(path: string): Promise<Environment> {
  let content: unknown;
  try {
    content = parse(await readFile(path, 'utf8'));
  } catch (error) {
    throw configInvalid([`${path}: ${errorText(error)}`]);
  }
  const result = fileSchema.safeParse(content ?? {});
  if (result.success) return result.data;
  throw configInvalid(
    result.error.issues.map((issue) => `${path}: ${issue.path.join('.')}: ${issue.message}`),
  );
}

import type { Command } from 'commander';
import { EXIT_FAILED } from '../failure.ts';
import { manifestOptions, objectName, openManifests } from '../manifest-command.ts';
import type { ManifestOptions } from '../manifest-command.ts';
import { write } from '../output.ts';

interface DeleteOptions extends ManifestOptions {
  readonly ignoreNotFound?: boolean;
}

/** Adds `weft delete`. */
export function register(command: Command): void {
  manifestOptions(command)
    .option('--ignore-not-found', 'succeed when an object does not exist')
    .action(remove);
}

async function remove(options: DeleteOptions): Promise<void> {
  const { api, documents } = await openManifests(options);
  const { deleted, missing } = await api.delete(documents);
  for (const object of deleted) await write(`${objectName(object)} deleted\n`);
  if (options.ignoreNotFound === true || missing.length === 0) return;
  for (const object of missing) process.stderr.write(`weft: ${objectName(object)} not found\n`);
  process.exitCode = EXIT_FAILED;
}

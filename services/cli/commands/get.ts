import { Argument } from 'commander';
import type { Command } from 'commander';
import { processEnvironment } from '../../../lib/config/env.ts';
import { KINDS, loadKind } from '../get/kinds.ts';
import type { KindName } from '../get/kinds.ts';
import { meshPaths } from '../../local-mesh/mesh-paths.ts';
import { requireMesh } from '../../local-mesh/mesh-record.ts';
import { meshOption, outputOption, warn, writeJson, writeTable } from '../output.ts';
import type { CommonOptions } from '../output.ts';

/** Adds `weft get`. */
export function register(program: Command): void {
  program
    .command('get')
    .description('list what is in a running mesh')
    .addArgument(new Argument('<kind>', 'what to list').choices(KINDS))
    .addOption(meshOption())
    .addOption(outputOption())
    .action(get);
}

async function get(name: KindName, options: CommonOptions): Promise<void> {
  const paths = meshPaths(options.mesh, processEnvironment());
  const { plan } = await requireMesh(paths);
  const kind = await loadKind(name);
  const { lines, rows, warnings } = await kind.read({ paths, plan });
  for (const warning of warnings) warn(warning);
  if (options.output === 'json') await writeJson(lines);
  else await writeTable(kind.header, rows);
}

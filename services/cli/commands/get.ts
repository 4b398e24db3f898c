import { Argument } from 'commander';
import type { Command } from 'commander';
import { KINDS, loadKind } from '../get/kinds.ts';
import type { KindName } from '../get/kinds.ts';
import { meshOption, outputOption, warn, writeJson, writeTable } from '../output.ts';
import type { CommonOptions } from '../output.ts';
import { openMesh } from '../running-mesh.ts';

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
  const mesh = await openMesh(options.mesh);
  const kind = await loadKind(name);
  const { lines, rows, warnings } = await kind.read(mesh);
  for (const warning of warnings) warn(warning);
  if (options.output === 'json') await writeJson(lines);
  else await writeTable(kind.header, rows);
}

import { Argument } from 'commander';
import type { Command } from 'commander';
import { KINDS, loadKind } from '../get/kinds.ts';
import type { KindName } from '../get/kinds.ts';
import { outputOption, readsMesh, warn, writeResult } from '../output.ts';
import type { CommonOptions } from '../output.ts';
import { withMesh } from '../open-mesh.ts';
import { textTable } from '../text-table.ts';

/** Adds `weft get`. */
export function register(command: Command): void {
  readsMesh(command)
    .addArgument(new Argument('<kind>', 'what to list').choices(KINDS))
    .addOption(outputOption())
    .action(get);
}

async function get(name: KindName, options: CommonOptions): Promise<void> {
  const kind = await loadKind(name);
  const { lines, rows, warnings } = await withMesh(options, (mesh) => kind.read(mesh));
  for (const warning of warnings) warn(warning);
  await writeResult(options, lines, textTable(kind.header, rows));
}

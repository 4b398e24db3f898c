import type { Command } from 'commander';
import { acceptHeld, readHeld } from '../held-removals.ts';
import { withMeshBus } from '../mesh-bus.ts';
import { meshOption, write } from '../output.ts';
import type { CommonOptions } from '../output.ts';
import { openMesh } from '../running-mesh.ts';

/** Adds `weft state`. */
export function register(command: Command): void {
  command
    .command('accept')
    .description('apply the removals of many workloads that the ingester holds')
    .addOption(meshOption())
    .action(accept);
}

async function accept(options: Pick<CommonOptions, 'mesh'>): Promise<void> {
  const { paths } = await openMesh(options.mesh);
  const applied = await withMeshBus(paths, async (bus) => {
    const held = await readHeld(bus);
    return held === null ? null : acceptHeld(bus, held.upTo);
  });
  await write(applied === null ? 'nothing is held\n' : `${applied} addresses removed\n`);
}

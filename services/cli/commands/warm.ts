import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { loadConsumer, loadQueue } from '../../../lib/bus/bullmq.ts';
import { ACTORS, loadActor } from '../../local-mesh/actors.ts';
import { commands } from '../command-table.ts';
import { KINDS, loadKind } from '../get/kinds.ts';
import { LOADED_LATER, REQUIRED } from '../loaded-later.ts';

/** Adds `weft warm`: loads every file, so that Node's compile cache holds it. */
export function register(command: Command): void {
  command.action(warm);
}

async function warm(): Promise<void> {
  for (const name of ACTORS) await loadActor(name);
  for (const { load } of Object.values(commands)) await load();
  for (const kind of KINDS) await loadKind(kind);
  await loadQueue();
  await loadConsumer();
  const root = new URL('../../../', import.meta.url);
  const require = createRequire(import.meta.url);
  for (const path of REQUIRED) require(fileURLToPath(new URL(path, root)));
  for (const path of LOADED_LATER) await import(new URL(path, root).href);
}

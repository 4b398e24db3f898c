import type { Command } from 'commander';
import { loadConsumer, loadQueue } from '../../../lib/bus/bullmq.ts';
import { ACTORS, loadActor } from '../actors.ts';
import { commands } from '../command-table.ts';
import { KINDS, loadKind } from '../get/kinds.ts';

/** Adds `weft warm`: loads all there is, so that the compile cache of Node.js holds it. */
export function register(program: Command): void {
  program
    .command('warm', { hidden: true })
    .description('load every actor and command once, which fills NODE_COMPILE_CACHE')
    .action(warm);
}

async function warm(): Promise<void> {
  for (const name of ACTORS) await loadActor(name);
  for (const { load } of Object.values(commands)) await load();
  for (const kind of KINDS) await loadKind(kind);
  await loadQueue();
  await loadConsumer();
  await import(new URL('../../../workers/listener/listener.worker.ts', import.meta.url).href);
  await import('../../../lib/hbone/engine-framing/engine.ts');
  await import('../../node-proxy/state-thread/state-service.ts');
}

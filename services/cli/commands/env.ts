import type { Command } from 'commander';
import { actorEnv, renderShell } from '../../local-mesh/actor-env.ts';
import { parseRole } from '../../local-mesh/roles.ts';
import { meshOption, write } from '../output.ts';
import { openMesh } from '../running-mesh.ts';

const HELP = `
Use it as: eval "$(weft env node-1/node-proxy)". The same environment starts Weft's own actor:
  nsenter --net=/run/netns/weft-node-1 weft run node-proxy
Leave a role to a program of your own with: weft up --external node-1/node-proxy`;

/** Adds `weft env`. */
export function register(command: Command): void {
  command
    .argument('<role>', '<node>/<actor>, or <actor> for one of the whole mesh')
    .addOption(meshOption())
    .addHelpText('after', HELP)
    .action(env);
}

async function env(name: string, options: { readonly mesh?: string }): Promise<void> {
  const { paths, plan } = await openMesh(options.mesh);
  const role = parseRole(name, plan);
  await write(renderShell(role, plan, actorEnv(role, plan, paths)));
}

import type { Command } from 'commander';
import { actorEnv, renderShell } from '../local/actor-env.ts';
import { meshPaths } from '../local/mesh-paths.ts';
import { requireMesh } from '../local/mesh-record.ts';
import { parseRole } from '../local/roles.ts';
import type { CommandContext } from '../main.ts';
import { meshOption, print } from '../output.ts';

const HELP = `
Use it as: eval "$(weft env node-1/node-proxy)". The same environment starts Weft's own actor:
  nsenter --net=/run/netns/weft-node-1 weft run node-proxy
Leave a role to a program of your own with: weft up --external node-1/node-proxy`;

/** `weft env`. */
export function addEnv(program: Command, context: CommandContext): void {
  program
    .command('env')
    .description('the environment of one role of the running mesh, as shell assignments')
    .argument('<node/actor>', 'the role, for example node-1/node-proxy, or control-plane')
    .addOption(meshOption())
    .addHelpText('after', HELP)
    .action(async (name: string, options: { mesh?: string }) => {
      const paths = meshPaths(options.mesh, context.environment);
      const { plan } = await requireMesh(paths);
      const role = parseRole(name, plan);
      await print(renderShell(role, plan, actorEnv(role, plan, paths)));
    });
}

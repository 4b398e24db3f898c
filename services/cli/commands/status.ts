import type { Command } from 'commander';
import type { MeshStatus } from '../local/local-mesh.ts';
import { meshPaths } from '../local/mesh-paths.ts';
import { requireMesh } from '../local/mesh-record.ts';
import { askJson } from '../local/unix-http.ts';
import type { CommandContext } from '../main.ts';
import { formatSeconds, meshOption, outputOption, print, printJson, renderTable } from '../output.ts';
import type { OutputOption } from '../output.ts';

const HELP = `
-o json prints {mesh, ready, redis: {pid, state, restarts, uptimeSeconds, socket},
  nodes: [{name, netns, addresses, pods}],
  actors: [{name, node, pid, state, pending, restarts, uptimeSeconds}]}
state is created, starting, ready, draining, stopped, failed, backoff (waits to be started again) or external.
Exit status 1 when the mesh does not run.`;

/** `weft status`. */
export function addStatus(program: Command, context: CommandContext): void {
  program
    .command('status')
    .description('nodes, actors and Redis of the local mesh, and whether all are ready')
    .addOption(outputOption())
    .addOption(meshOption())
    .addHelpText('after', HELP)
    .action(async (options: OutputOption & { mesh?: string }) => {
      const paths = meshPaths(options.mesh, context.environment);
      await requireMesh(paths);
      const status = await askJson<MeshStatus>({ socket: paths.supervisorSocket, path: '/status' });
      if (options.output === 'json') await printJson(status);
      else await print(renderStatus(status));
    });
}

/** The status for people. */
export function renderStatus(status: MeshStatus): string {
  const rows = status.actors.map((actor) => [
    actor.name,
    actor.node ?? '',
    actor.pid === null ? '' : String(actor.pid),
    actor.pending.length === 0 ? actor.state : `${actor.state} (${actor.pending.join(', ')})`,
    String(actor.restarts),
    formatSeconds(actor.uptimeSeconds),
  ]);
  const { redis } = status;
  const redisRow = [
    'redis',
    '',
    redis.pid === null ? '' : String(redis.pid),
    redis.state,
    String(redis.restarts),
    formatSeconds(redis.uptimeSeconds),
  ];
  const nodes = status.nodes.map((node) => [
    node.name,
    node.netns,
    node.addresses.join(', '),
    String(node.pods),
  ]);
  return [
    `mesh ${status.mesh}: ${status.ready ? 'ready' : 'not ready'}\n\n`,
    renderTable(['NODE', 'NAMESPACE', 'ADDRESSES', 'PODS'], nodes),
    '\n',
    renderTable(['ACTOR', 'NODE', 'PID', 'STATE', 'RESTARTS', 'UP'], [redisRow, ...rows]),
  ].join('');
}

import type { Command } from 'commander';
import { askUpgrade, countDraining } from '../../local-mesh/mesh-client.ts';
import { meshRoles, parseRole, roleName } from '../../local-mesh/roles.ts';
import type { Upgraded } from '../../local-mesh/role-processes.ts';
import { meshOption, write } from '../output.ts';
import { parseTimeout } from '../references.ts';
import { openMesh } from '../running-mesh.ts';

const DEFAULT_TIMEOUT = '60s';

interface Options {
  readonly mesh?: string;
  readonly timeout: string;
}

/** Adds `weft upgrade`. */
export function register(command: Command): void {
  command
    .argument(
      '<roles...>',
      '[<node>/]<actor>; an actor of the nodes without a node means all nodes',
    )
    .addOption(meshOption())
    .option(
      '--timeout <duration>',
      'time limit for a new process to be ready; after it the old one continues',
      DEFAULT_TIMEOUT,
    )
    .action(upgrade);
}

async function upgrade(names: readonly string[], options: Options): Promise<void> {
  const timeoutMs = parseTimeout(options.timeout);
  const { paths, plan } = await openMesh(options.mesh);
  const roles = names.flatMap((name) => {
    const onNodes = meshRoles(plan).filter((role) => role.node !== null && role.actor === name);
    return onNodes.length > 0 ? onNodes : [parseRole(name, plan)];
  });
  for (const role of roles) {
    const [done] = await askUpgrade(paths, [roleName(role)], timeoutMs);
    if (done === undefined) continue;
    const carried =
      role.actor === 'node-proxy' && role.node !== null
        ? await countDraining(paths, role.node.name)
        : null;
    await write(`${upgradedLine(done, carried)}\n`);
  }
}

/** The line about an upgraded role. `carried`: connections of its replaced processes; null for roles without connections. */
export function upgradedLine(done: Upgraded, carried: number | null): string {
  const serves = `${done.role}: generation ${done.generation} serves (pid ${done.pids.join(', ')})`;
  if (done.draining.length === 0) return serves;
  const what =
    carried === null ? '' : ` ${carried} ${carried === 1 ? 'connection' : 'connections'}`;
  const limit =
    done.drainDeadlineMs === null
      ? 'without a time limit'
      : `for at most ${done.drainDeadlineMs / 1_000} s`;
  return `${serves}; ${done.draining.join(', ')} drains${what} ${limit}`;
}

import type { Command } from 'commander';
import { processEnvironment } from '../../../lib/config/env.ts';
import { parseDuration } from '../../../lib/config/fields.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { askUpgrade } from '../../local-mesh/mesh-client.ts';
import { meshPaths } from '../../local-mesh/mesh-paths.ts';
import { requireMesh } from '../../local-mesh/mesh-record.ts';
import { meshRoles, parseRole, roleName } from '../../local-mesh/roles.ts';
import { UsageError } from '../../../lib/errors/usage-error.ts';

const DEFAULT_TIMEOUT = '60s';

interface Options {
  readonly mesh?: string;
  readonly timeout: string;
}

/** Adds `weft upgrade`. */
export function register(program: Command): void {
  program
    .command('upgrade')
    .description(
      'start new processes of roles, and end the old ones once the new ones serve; one role after another',
    )
    .argument('<roles...>', '[<node>/]<actor>, or an actor of the nodes alone for all of them')
    .option('--mesh <name>', 'name of the mesh (default: weft)')
    .option(
      '--timeout <duration>',
      'a new process not ready by then is given up, and the old one goes on',
      DEFAULT_TIMEOUT,
    )
    .action(upgrade);
}

async function upgrade(names: readonly string[], options: Options): Promise<void> {
  const timeoutMs = timeLimit(options.timeout);
  const paths = meshPaths(options.mesh, processEnvironment());
  const { plan } = await requireMesh(paths);
  const roles = names.flatMap((name) => {
    const onNodes = meshRoles(plan).filter((role) => role.node !== null && role.actor === name);
    return onNodes.length > 0 ? onNodes : [parseRole(name, plan)];
  });
  for (const role of roles) {
    const [done] = await askUpgrade(paths, [roleName(role)], timeoutMs);
    if (done === undefined) continue;
    const left = done.draining.length === 0 ? '' : `; ${done.draining.join(', ')} drains`;
    process.stdout.write(
      `${done.role}: generation ${done.generation} serves (pid ${done.pids.join(', ')})${left}\n`,
    );
  }
}

function timeLimit(text: string): number {
  try {
    return parseDuration(text);
  } catch (error) {
    throw new UsageError(`--timeout ${errorText(error)}`);
  }
}

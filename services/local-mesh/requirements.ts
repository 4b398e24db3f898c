import { hostConfig } from '../../lib/actor/host-config.ts';
import { configInvalid } from '../../lib/config/define-config.ts';
import type { Environment } from '../../lib/config/env.ts';
import { unknownVariables } from '../../lib/config/unknown-variables.ts';
import { contradictions } from './actor-env.ts';
import { ACTORS, loadActor } from './actors.ts';
import { setsActors } from './inherited-env.ts';
import { randomBytes } from 'node:crypto';
import { access, constants } from 'node:fs/promises';
import { join } from 'node:path';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { runCommand } from './run-command.ts';

const COMMANDS = {
  ip: 'iproute2',
  nsenter: 'util-linux',
  unshare: 'util-linux',
  mount: 'mount',
  'redis-server': 'redis-server',
  'redis-check-aof': 'redis-tools',
  'iptables-restore': 'iptables',
  'ip6tables-restore': 'iptables',
} as const;

const STILL_WORKS =
  'What works without: npm test (tests that need namespaces are skipped), weft run with a Redis and a control plane of your own, docker compose.';

/**
 * Checks that this machine can run a local mesh: root, the commands, network namespaces and netfilter.
 * Throws NETNS_UNAVAILABLE that names everything missing, and the commands that work without it.
 */
export async function checkRequirements(uid: number, path: string): Promise<void> {
  if (uid !== 0) {
    throw unsupported(['root: network namespaces and netfilter rules need it (try sudo)']);
  }
  const missing: string[] = [];
  for (const [command, debianPackage] of Object.entries(COMMANDS)) {
    if (!(await onPath(command, path))) {
      missing.push(
        `the command ${command} (Debian package ${debianPackage}; sh infra/setup.sh installs it)`,
      );
    }
  }
  if (missing.length > 0) throw unsupported(missing);
  const probe = `weftprobe${randomBytes(4).toString('hex')}`;
  try {
    await runCommand('ip', ['netns', 'add', probe]);
  } catch (error) {
    throw unsupported([`network namespaces: ${errorText(error)}`]);
  }
  try {
    for (const tool of ['iptables', 'ip6tables']) {
      await runCommand('nsenter', [`--net=/run/netns/${probe}`, tool, '-w', '-t', 'nat', '-S']);
    }
  } catch (error) {
    throw unsupported([`netfilter: ${errorText(error)}`]);
  } finally {
    await runCommand('ip', ['netns', 'del', probe]);
  }
}

async function onPath(command: string, path: string): Promise<boolean> {
  for (const directory of path.split(':')) {
    try {
      await access(join(directory, command), constants.X_OK);
      return true;
    } catch {
      // The command is not in this directory; look in the next one.
    }
  }
  return false;
}

function unsupported(missing: readonly string[]): MeshError {
  return new MeshError(
    'NETNS_UNAVAILABLE',
    `this machine cannot carry a local mesh; missing: ${missing.join('; ')}. ${STILL_WORKS}`,
  );
}

/**
 * Refuses `WEFT_*` variables that no actor of the mesh reads. Each actor gets only the variables it knows, so no actor
 * would notice. Throws CONFIG_INVALID that names them all. Loads no actor when there are no such variables.
 */
export async function checkEnvironment(environment: Environment): Promise<void> {
  const contradicting = contradictions(environment);
  if (contradicting.length > 0) throw configInvalid(contradicting);
  if (!setsActors(environment)) return;
  const definitions = await Promise.all(ACTORS.map(loadActor));
  const known = [hostConfig, ...definitions.map((definition) => definition.config)].flatMap(
    (spec) => Object.keys(spec.variables),
  );
  const problems = unknownVariables(environment, known);
  if (problems.length > 0) throw configInvalid(problems);
}

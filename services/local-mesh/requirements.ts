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
  'iptables-restore': 'iptables',
  'ip6tables-restore': 'iptables',
} as const;

const STILL_WORKS =
  'What works without: npm test (tests that need namespaces are skipped), weft run with a Redis and a control plane of your own, docker compose.';

/**
 * Checks that this machine can carry a local mesh: root, the commands, network namespaces and netfilter.
 * Throws NETNS_UNAVAILABLE that names everything missing, and what works all the same.
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
      // Not in this directory: look in the next.
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

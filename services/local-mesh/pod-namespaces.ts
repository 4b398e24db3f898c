/** A pod's own namespaces: the network it lives in, and mounts in which /etc/hosts is its own. */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { NETNS_DIR, netnsPath } from './namespaces.ts';
import { inParallel, ipBatch, runCommand } from './run-command.ts';
import { NODE_LINK_LOCAL, podLinkName } from './topology.ts';
import type { AddressPair, NodePlan } from './topology.ts';

/** System commands running at once while pods are made. */
const PARALLEL_COMMANDS = 4;

/** The namespaces of one pod. */
export interface PodSandbox {
  readonly uid: string;
  readonly netns: string;
  readonly node: NodePlan;
  readonly addresses: AddressPair;
  /** File that becomes the pod's /etc/hosts; must exist, and is rewritten in place only. */
  readonly hostsFile: string;
  /** File that becomes the pod's /etc/resolv.conf; null leaves the machine's. */
  readonly resolvConf: string | null;
  /** File on which the pod's mount namespace is kept. */
  readonly mountsFile: string;
  /** The pod lives in its node's network: `netns` is the node's, and no link is made. */
  readonly hostNetwork: boolean;
}

/**
 * Prepares the directory that keeps mount namespaces: the kernel accepts them only on a mount that does not
 * propagate.
 */
export async function prepareMountsDir(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await runCommand('mount', ['--bind', directory, directory]);
  await runCommand('mount', ['--make-private', directory]);
}

/** The file for a pod's mount namespace below `directory`. */
export function mountsFile(directory: string, netns: string): string {
  return join(directory, netns);
}

/** Makes the namespaces of many pods with few commands. Throws NETNS_UNAVAILABLE. */
export async function createSandboxes(sandboxes: readonly PodSandbox[]): Promise<void> {
  const linked = sandboxes.filter((sandbox) => !sandbox.hostNetwork);
  await ipBatch(
    null,
    linked.map((sandbox) => `netns add ${sandbox.netns}`),
  );
  const nodes = new Map<string, PodSandbox[]>();
  for (const sandbox of linked) {
    const list = nodes.get(sandbox.node.netns) ?? [];
    list.push(sandbox);
    nodes.set(sandbox.node.netns, list);
  }
  for (const [netns, list] of nodes) await ipBatch(netns, list.flatMap(nodeSide));
  await inParallel(sandboxes, PARALLEL_COMMANDS, async (sandbox) => {
    if (!sandbox.hostNetwork) await ipBatch(sandbox.netns, podSide(sandbox));
    await createMounts(sandbox);
  });
}

/** Commands in the node's namespace: the pod's link, its node end, and the routes to the pod. */
export function nodeSide(sandbox: PodSandbox): string[] {
  const link = podLinkName(sandbox.uid);
  return [
    `link add name ${link} type veth peer name eth0 netns ${sandbox.netns}`,
    `addr add ${NODE_LINK_LOCAL}/64 dev ${link} nodad`,
    `link set dev ${link} up`,
    `route add ${sandbox.addresses.ipv4}/32 dev ${link}`,
    `route add ${sandbox.addresses.ipv6}/128 dev ${link}`,
  ];
}

/** Commands in the pod's namespace. */
export function podSide(sandbox: PodSandbox): string[] {
  const { addresses, node } = sandbox;
  return [
    'link set dev lo up',
    'link set dev eth0 up',
    `addr add ${addresses.ipv4}/32 dev eth0`,
    `addr add ${addresses.ipv6}/128 dev eth0 nodad`,
    `route add ${node.gateway.ipv4} dev eth0 scope link`,
    `route add default via ${node.gateway.ipv4} dev eth0`,
    `route add default via ${node.gateway.ipv6} dev eth0`,
  ];
}

/**
 * In the new mount namespace: the pod's own names, IPv4 first where a name has both (as on most clusters), and
 * without the names of other pods' networks, which it would otherwise keep alive.
 */
const MOUNT_SCRIPT = `
umount -l ${NETNS_DIR} 2>/dev/null || true
mount --bind "$1" /etc/hosts || exit
if [ -n "$3" ] && [ -e /etc/resolv.conf ]; then
  mount --bind "$3" /etc/resolv.conf || exit
fi
[ -e /etc/gai.conf ] || exit 0
echo 'precedence ::ffff:0:0/96 100' >"$2"
exec mount --bind "$2" /etc/gai.conf`;

async function createMounts(sandbox: PodSandbox): Promise<void> {
  await writeFile(sandbox.mountsFile, '', { mode: 0o600 });
  await runCommand('unshare', [
    `--mount=${sandbox.mountsFile}`,
    '--propagation=private',
    'sh',
    '-c',
    MOUNT_SCRIPT,
    'pod',
    sandbox.hostsFile,
    join(dirname(sandbox.hostsFile), 'gai.conf'),
    sandbox.resolvConf ?? '',
  ]);
}

/** Removes a pod's namespaces. What is already gone is fine. Processes inside are the caller's. */
export async function removeSandbox(
  sandbox: Pick<PodSandbox, 'uid' | 'netns' | 'node' | 'mountsFile' | 'hostNetwork'>,
): Promise<void> {
  await ignoringAbsence(() => runCommand('umount', [sandbox.mountsFile]));
  await rm(sandbox.mountsFile, { force: true });
  if (sandbox.hostNetwork) return;
  // Whoever still holds the namespace open must not keep the link, and with it the pod's address.
  const link = podLinkName(sandbox.uid);
  await ignoringAbsence(() => runCommand('ip', ['-n', sandbox.node.netns, 'link', 'del', link]));
  await ignoringAbsence(() => runCommand('ip', ['netns', 'del', sandbox.netns]));
}

/** These commands have no exit status of their own for "is not there". */
const ABSENT =
  /Cannot find device|No such file or directory|not mounted|no mount point specified|Cannot open network namespace|Invalid argument/;

async function ignoringAbsence(command: () => Promise<string>): Promise<void> {
  try {
    await command();
  } catch (error) {
    if (!(error instanceof MeshError) || !ABSENT.test(error.message)) throw error;
  }
}

/** The command line that runs something inside a pod. */
export function insidePod(sandbox: Pick<PodSandbox, 'netns' | 'mountsFile'>): string[] {
  return ['nsenter', `--net=${netnsPath(sandbox.netns)}`, `--mount=${sandbox.mountsFile}`, '--'];
}

/** A pod's namespaces: its network, and mounts with its own /etc/hosts. */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { NETNS_DIR, netnsPath } from './namespaces.ts';
import { inParallel, ipBatch, runCommand } from './run-command.ts';
import { NODE_LINK_LOCAL, podLinkName } from './topology.ts';
import type { AddressPair, NodePlan } from './topology.ts';

/** System commands that run at once while pods are made. */
const PARALLEL_COMMANDS = 4;

/** The namespaces of one pod. */
export interface PodSandbox {
  readonly uid: string;
  readonly netns: string;
  readonly node: NodePlan;
  readonly addresses: AddressPair;
  /** File that becomes the pod's /etc/hosts. It must exist, and writers must rewrite it in place. */
  readonly hostsFile: string;
  /** File that becomes the pod's /etc/resolv.conf; null keeps the machine's. */
  readonly resolvConf: string | null;
  /** File on which the pod's mount namespace is mounted. */
  readonly mountsFile: string;
  /** The pod lives in its node's network: `netns` is the node's, and no link is made. */
  readonly hostNetwork: boolean;
}

/**
 * Prepares the directory that keeps mount namespaces. The kernel accepts them only on a mount that does not
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

/** Makes the namespaces of many pods, with few commands. Throws NETNS_UNAVAILABLE. */
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
 * Commands in the pod's new mount namespace. They mount the pod's names, prefer IPv4 for a name with both families (as most
 * clusters do), and unmount other pods' network namespaces, which this namespace would otherwise keep alive.
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

/** Removes a pod's namespaces. Skips those that are gone. The caller ends the processes inside. */
export async function removeSandbox(
  sandbox: Pick<PodSandbox, 'uid' | 'netns' | 'node' | 'mountsFile' | 'hostNetwork'>,
): Promise<void> {
  await ignoringAbsence(() => runCommand('umount', [sandbox.mountsFile]));
  await rm(sandbox.mountsFile, { force: true });
  if (sandbox.hostNetwork) return;
  // An open descriptor keeps the namespace alive. Remove its link, so that the pod's address is free.
  const link = podLinkName(sandbox.uid);
  await ignoringAbsence(() => runCommand('ip', ['-n', sandbox.node.netns, 'link', 'del', link]));
  await ignoringAbsence(() => runCommand('ip', ['netns', 'del', sandbox.netns]));
}

/** True when a command failed because its target is absent; these commands have no exit status for that. */
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

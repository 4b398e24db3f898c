/** Makes network namespaces for tests, with random names, veth pairs and addresses of both families, and removes them. */
import { execFile, execFileSync, spawn } from 'node:child_process';
import type { ChildProcess, SpawnOptions } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import type { ExecutionContext } from 'ava';
import { capabilities } from '../../lib/linux/process.ts';
import type { TeardownOwner } from './actor-context.ts';
import { netnsName } from './leftovers.ts';

const run = promisify(execFile);

/** A namespace made for one test. */
export interface TestNetns {
  readonly name: string;
  /** File that holds the namespace. */
  readonly path: string;
  /** Runs `ip -n <name> …`; words are separated by single spaces. */
  ip(command: string): Promise<string>;
  /** Runs a command inside and resolves to its standard output. Rejects with its error output. */
  exec(command: string, ...args: string[]): Promise<string>;
  /** Replaces the namespace by a new, empty one of the same name, as when a sandbox is recreated. */
  replace(): Promise<void>;
  /** Starts a process inside. The test or its end terminates it. */
  spawn(command: string, args: readonly string[], options?: SpawnOptions): ChildProcess;
}

/** One end of a link. */
export interface LinkEnd {
  readonly netns: TestNetns;
  readonly device: string;
  /** With prefix length, e.g. `10.9.0.1/24` and `fd09::1/64`. */
  readonly addresses: readonly string[];
  /** Default gateways, one per family wanted. */
  readonly gateways?: readonly string[];
  /** The bridge that the device joins. */
  readonly bridge?: string;
}

/** Returns why network namespaces or netfilter cannot be used here; null when they can. */
export function netnsUnavailable(): string | null {
  if (process.platform !== 'linux') return 'not Linux';
  try {
    const { netAdmin, sysAdmin } = capabilities();
    if (!netAdmin || !sysAdmin) return 'needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN)';
    const probe = `weftprobe${randomBytes(4).toString('hex')}`;
    execFileSync('ip', ['netns', 'add', probe], { stdio: 'pipe' });
    try {
      execFileSync('ip', ['netns', 'exec', probe, 'iptables', '-w', '-t', 'nat', '-S'], {
        stdio: 'pipe',
      });
    } finally {
      execFileSync('ip', ['netns', 'del', probe], { stdio: 'pipe' });
    }
    return null;
  } catch (error) {
    return error instanceof Error ? error.message.trim() : String(error);
  }
}

/** Makes a namespace with its loopback up. The end of the test removes it and ends all processes of {@link TestNetns.spawn}. */
export async function createNetns(t: TeardownOwner, label = 'ns'): Promise<TestNetns> {
  const name = netnsName(label);
  const children = new Set<ChildProcess>();
  await script([`ip netns add ${name}`, `ip -n ${name} link set lo up`]);
  t.teardown(async () => {
    await Promise.all([...children].map(endProcess));
    await run('ip', ['netns', 'del', name]);
  });
  return {
    name,
    path: `/run/netns/${name}`,
    ip: async (command) => (await run('ip', ['-n', name, ...command.split(' ')])).stdout,
    exec: async (command, ...args) =>
      (await run('ip', ['netns', 'exec', name, command, ...args])).stdout,
    replace: () =>
      script([`ip netns del ${name}`, `ip netns add ${name}`, `ip -n ${name} link set lo up`]),
    spawn: (command, args, options = {}) => {
      const child = spawn('ip', ['netns', 'exec', name, command, ...args], options);
      children.add(child);
      child.once('exit', () => children.delete(child));
      return child;
    },
  };
}

/** Joins two namespaces by a veth pair, with addresses usable at once (no duplicate address detection). */
export async function connectNetns(a: LinkEnd, b: LinkEnd): Promise<void> {
  await script([
    `ip -n ${a.netns.name} link add ${a.device} type veth peer name ${b.device} netns ${b.netns.name}`,
    ...configureEnd(a),
    ...configureEnd(b),
  ]);
}

/** Makes a namespace with a bridge `br0` of these addresses, which connects pods. */
export async function createHub(
  t: TeardownOwner,
  addresses: readonly string[],
): Promise<TestNetns> {
  const netns = await createNetns(t, 'hub');
  await script([
    `ip -n ${netns.name} link add br0 type bridge`,
    ...configureEnd({ netns, device: 'br0', addresses }),
  ]);
  return netns;
}

/**
 * Makes a pod and a peer on one link: pod `10.9.0.2` / `fd09::2`, peer `10.9.0.1` / `fd09::1`. Each is the other's
 * default gateway, as a node is for its pod.
 */
export async function createPodPair(
  t: ExecutionContext,
): Promise<{ readonly pod: TestNetns; readonly peer: TestNetns }> {
  const pod = await createNetns(t, 'pod');
  const peer = await createNetns(t, 'peer');
  await connectNetns(
    {
      netns: pod,
      device: 'eth0',
      addresses: ['10.9.0.2/24', 'fd09::2/64'],
      gateways: ['10.9.0.1', 'fd09::1'],
    },
    {
      netns: peer,
      device: 'veth0',
      addresses: ['10.9.0.1/24', 'fd09::1/64'],
      gateways: ['10.9.0.2', 'fd09::2'],
    },
  );
  return { pod, peer };
}

/** The shell lines that give a link its addresses and routes. */
function configureEnd(end: LinkEnd): readonly string[] {
  const { netns, device, addresses, gateways = [], bridge } = end;
  return [
    `ip -n ${netns.name} -batch - <<END`,
    ...addresses.map(
      (address) => `addr add ${address} dev ${device}${address.includes(':') ? ' nodad' : ''}`,
    ),
    `link set ${device}${bridge === undefined ? '' : ` master ${bridge}`} up`,
    ...gateways.map((gateway) => `route add default via ${gateway} dev ${device}`),
    'END',
  ];
}

/** Runs shell lines until one fails. One start of a program from this large process costs as much as ten from a shell. */
async function script(lines: readonly string[]): Promise<void> {
  await run('sh', ['-ec', lines.join('\n')]);
}

async function endProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await exited;
}

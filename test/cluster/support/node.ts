/** A node: containerd, kube-proxy and kubelet in namespaces of their own (node.sh). */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import type { TeardownOwner } from '../../support/actor-context.ts';
import { cgroupRemoval, makeScratch } from '../../support/leftovers.ts';
import { until } from '../../support/until.ts';
import type { ImageArchives } from './images.ts';
import { PAUSE_IMAGE } from './images.ts';
import { DNS_ADDRESS, POD_RANGES } from './network.ts';
import type { NodePlace } from './network.ts';
import { Program } from './program.ts';
import type { ProgramOptions } from './program.ts';
import type { ClusterPrograms } from './programs.ts';

const run = promisify(execFile);
const SCRIPT = new URL('node.sh', import.meta.url).pathname;
const CGROUPS = '/sys/fs/cgroup';
/** Settings that a new group of this controller lacks; without them no process can join it. */
const CPUSET = ['cpuset.cpus', 'cpuset.mems'];

/** The parts of a node. */
export interface NodeOptions {
  readonly place: NodePlace;
  readonly programs: ClusterPrograms;
  readonly images: ImageArchives;
  /** Texts of kubeconfig files: kubelet's own account, and kube-proxy's. */
  readonly kubeletAccess: string;
  readonly proxyAccess: string;
}

/** A running node. */
export interface ClusterNode {
  readonly place: NodePlace;
  /** Holds logs. */
  readonly folder: string;
  /** Throws when the node has ended. */
  check(): Promise<void>;
  /** Runs a command on the node, in all of its namespaces; returns its output. */
  exec(...words: readonly string[]): Promise<string>;
  /** Kills all processes of the node, pods included, and starts it again with the files that it had. */
  restart(): Promise<void>;
}

/** Starts a node; the owner's end ends all of its processes and removes what they made. */
export async function startNode(t: TeardownOwner, options: NodeOptions): Promise<ClusterNode> {
  const { place } = options;
  const folder = await makeScratch(place.name);
  t.teardown(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }));
  const group = basename(place.netns.path);
  const controllers = await makeGroups(group);
  t.teardown(() => removeGroups(controllers, group));
  await writeSettings(folder, group, options);
  const start = (): Promise<Program> => Program.start(nodeProgram(folder, options));
  let program = await start();
  const kill = async (): Promise<void> => {
    await program.kill();
    await until(async () => (await run('ip', ['netns', 'pids', group])).stdout === '', {
      what: `the processes of ${place.name} are gone`,
    });
  };
  t.teardown(kill);
  return {
    place,
    folder,
    check: () => program.check(),
    exec: async (...words) => {
      const children = `/proc/${program.pid}/task/${program.pid}/children`;
      const first = (await readFile(children, 'utf8')).trim();
      const { stdout } = await run('nsenter', ['-t', first, '-m', '-n', '-p', ...words]);
      return stdout;
    },
    restart: async () => {
      await kill();
      // A machine that starts has no groups of before. kubelet would ask containerd for the container of each, one after another.
      await removeGroups(controllers, group);
      await makeGroups(group);
      program = await start();
    },
  };
}

function nodeProgram(folder: string, { place, programs }: NodeOptions): ProgramOptions {
  return {
    name: 'node',
    words: ['unshare', '--mount', '--pid', '--fork', '--kill-child', 'sh', SCRIPT],
    folder,
    netns: place.netns.path,
    environment: {
      NODE_DIR: folder,
      NODE_NAME: place.name,
      NODE_IPS: place.addresses.join(','),
      POD_RANGES: POD_RANGES.join(','),
      KUBELET: programs.kubelet,
      KUBE_PROXY: programs.kubeProxy,
    },
  };
}

async function writeSettings(folder: string, group: string, options: NodeOptions): Promise<void> {
  const { place, programs, images } = options;
  for (const name of ['cni/net.d', 'cni/bin', 'images']) {
    await mkdir(join(folder, name), { recursive: true });
  }
  for (const [name, path] of Object.entries(programs.plugins)) {
    await copyFile(path, join(folder, 'cni/bin', name));
  }
  for (const [name, path] of Object.entries(images)) {
    await symlink(path, join(folder, 'images', `${name}.tar`));
  }
  await Promise.all([
    writeFile(join(folder, 'cni/net.d/10-bridge.conflist'), JSON.stringify(network(place))),
    writeFile(join(folder, 'containerd.toml'), CONTAINERD),
    writeFile(join(folder, 'kubelet.yaml'), `---\n${JSON.stringify(kubelet(folder, group))}\n`),
    writeFile(join(folder, 'resolv.conf'), ''),
    writeFile(join(folder, 'kubelet.kubeconfig'), options.kubeletAccess),
    writeFile(join(folder, 'kubeconfig'), options.proxyAccess),
  ]);
}

const CONTAINERD = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${PAUSE_IMAGE}"
  # Only CAP_SYS_RESOURCE may lower a score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
`;

function network({ podRanges }: NodePlace): unknown {
  return {
    cniVersion: '1.0.0',
    name: 'pods',
    plugins: [
      {
        type: 'bridge',
        bridge: 'cni0',
        isGateway: true,
        hairpinMode: true,
        ipam: {
          type: 'host-local',
          ranges: podRanges.map((subnet) => [{ subnet }]),
          routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
        },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
    ],
  };
}

function kubelet(folder: string, group: string): unknown {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
    authorization: { mode: 'AlwaysAllow' },
    containerRuntimeEndpoint: 'unix:///run/containerd/containerd.sock',
    cgroupDriver: 'cgroupfs',
    cgroupRoot: `/${group}`,
    failCgroupV1: false,
    failSwapOn: false,
    enforceNodeAllocatable: [],
    localStorageCapacityIsolation: false,
    evictionHard: { 'memory.available': '100Mi', 'nodefs.available': '1%' },
    imageGCHighThresholdPercent: 100,
    clusterDomain: 'cluster.local',
    clusterDNS: [DNS_ADDRESS],
    resolvConf: join(folder, 'resolv.conf'),
    maxPods: 150,
    // A container that was killed often starts again soon, so that it can be killed again.
    featureGates: { KubeletCrashLoopBackOffMax: true },
    crashLoopBackOff: { maxContainerRestartPeriod: '2s' },
    // Two nodes share the processors with all else that runs here.
    syncFrequency: '10s',
  };
}

/** Makes a group in every hierarchy of version 1; returns their names. */
async function makeGroups(group: string): Promise<readonly string[]> {
  const entries = await readdir(CGROUPS, { withFileTypes: true });
  const controllers = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  for (const controller of controllers) await mkdir(join(CGROUPS, controller, group));
  for (const setting of CPUSET) {
    const own = await readFile(join(CGROUPS, 'cpuset', setting));
    await writeFile(join(CGROUPS, 'cpuset', group, setting), own);
  }
  return controllers;
}

async function removeGroups(controllers: readonly string[], group: string): Promise<void> {
  for (const controller of controllers) {
    // A group stays busy until the kernel has removed the last process.
    await until(
      async () => {
        await run('find', [...cgroupRemoval(controller, group)]);
        return !existsSync(join(CGROUPS, controller, group));
      },
      { what: `the control group ${group} of ${controller} is empty` },
    );
  }
}

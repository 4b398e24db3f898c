/** Processes of a node: they live in namespaces and control groups as a container runtime starts them. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readFile, rm, rmdir, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { makeScratch } from './leftovers.ts';
import type { TestNetns } from './netns-kit.ts';
import { until } from './until.ts';

/** Where version 2 of control groups is mounted: alone, or beside version 1. */
const MOUNTS = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'];

async function cgroupMount(): Promise<string> {
  for (const path of MOUNTS) {
    if (await stat(join(path, 'cgroup.subtree_control')).catch(() => null)) return path;
  }
  throw new Error(`no cgroup2 in ${MOUNTS.join(' or ')}`);
}

/** A folder that stands for the `/proc` of a node, with the processes that a test puts there. */
export class NodeProc {
  readonly dir: string;

  private constructor(dir: string) {
    this.dir = dir;
  }

  /** Makes one whose process 1 is in the namespace of the node. */
  static async create(t: ExecutionContext, node: TestNetns): Promise<NodeProc> {
    const dir = await makeScratch('proc');
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const made = new NodeProc(dir);
    await symlink('/proc/sys', join(dir, 'sys'));
    await made.#add('1', await startSleeper(t, node));
    return made;
  }

  /** Adds a process of a pod, in `netns` and under the names that kubelet with systemd and containerd give. */
  async addPod(t: ExecutionContext, netns: TestNetns, uid: string): Promise<void> {
    const group = await makeGroup(t, uid);
    const pid = await startSleeper(t, netns);
    await writeFile(join(group, 'cgroup.procs'), pid);
    await this.#add(pid, pid);
  }

  #add(name: string, pid: string): Promise<void> {
    return symlink(`/proc/${pid}`, join(this.dir, name));
  }
}

/** Makes the control group of a container; the end of the test removes it. */
async function makeGroup(t: ExecutionContext, uid: string): Promise<string> {
  const parent = join(
    await cgroupMount(),
    `weft-test-${randomBytes(4).toString('hex')}-kubepods-pod${uid.replaceAll('-', '_')}.slice`,
  );
  const group = join(parent, `cri-containerd-${randomBytes(32).toString('hex')}.scope`);
  await mkdir(group, { recursive: true });
  t.teardown(async () => {
    await until(async () => (await readFile(join(group, 'cgroup.procs'), 'utf8')) === '', {
      what: 'the group is empty',
    });
    await rmdir(group);
    await rmdir(parent);
  });
  return group;
}

/** Starts a process that sleeps in the namespace until the test ends; returns its number. */
async function startSleeper(t: ExecutionContext, netns: TestNetns): Promise<string> {
  const child = netns.spawn('sleep', ['infinity'], { stdio: 'ignore' });
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  });
  // `ip` becomes the command once it is in the namespace.
  const wanted = await stat(netns.path);
  await until(async () => (await stat(`/proc/${child.pid}/ns/net`)).ino === wanted.ino, {
    what: 'the process is in its namespace',
  });
  return String(child.pid);
}

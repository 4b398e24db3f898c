/**
 * Soaks the node agent alone: enrols many pods of one node at once, then has them leave and join, or be replaced by pods in new
 * namespaces, round after round. The agent must hold no more descriptors, namespaces and memory afterwards.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { raiseFileLimit } from '../../lib/linux/process.ts';
import { askJson } from '../../services/local-mesh/unix-http.ts';
import { netnsName } from '../support/leftovers.ts';
import { agentSite, spawnAgent } from '../support/node-agent-kit.ts';
import type { AgentSite, SiteOwner } from '../support/node-agent-kit.ts';
import { podRecord, removeRecord, writeRecord } from '../support/pod-records.ts';
import { ServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';
import { grownMemory, heldDescriptors, least, mib, ownBytes } from './resources.ts';
import type { Usage } from './resources.ts';

/** Pods that change in one round. */
const ROUND_PODS = 50;
/** A round takes seconds; a thousand pods that come at once take minutes on a busy machine. */
const ENROL_TIMEOUT_MS = 900_000;
/** Clock ticks a second, in `/proc/<pid>/stat`. */
const TICKS = 100;

/** The agent's process at one moment. */
interface AgentUsage extends Usage {
  /** Inodes of the network namespaces that it holds. */
  readonly namespaces: ReadonlySet<number>;
  /** Its processor time, with that of the programs that it ran. */
  readonly cpuSeconds: number;
}

/** A node agent in a process of its own, a proxy that serves its pods, and the pods. */
class EnrolledNode {
  readonly #site: AgentSite;
  readonly #pid: number;
  readonly #admin: string;
  /** Uids, which are the names of the namespaces. */
  readonly pods: string[] = [];
  #made = 0;

  constructor(site: AgentSite, pid: number, admin: string) {
    this.#site = site;
    this.#pid = pid;
    this.#admin = admin;
  }

  /** Adds so many pods in new namespaces and waits until all are enrolled. */
  async add(count: number): Promise<void> {
    const uids = Array.from({ length: count }, () => netnsName(`s${(this.#made += 1)}`));
    await sh(uids.flatMap((uid) => [`ip netns add ${uid}`, `ip -n ${uid} link set lo up`]));
    this.pods.push(...uids);
    await Promise.all(uids.map((uid) => this.#write(uid, true)));
    await this.#states({ enabled: this.pods.length, outside: 0 });
  }

  /** Removes the first pods, and their namespaces. */
  async remove(count: number): Promise<void> {
    const uids = this.pods.splice(0, count);
    await Promise.all(uids.map((uid) => removeRecord(this.#site.podsDir, uid)));
    await this.#states({ enabled: this.pods.length, outside: 0 });
    await sh(uids.map((uid) => `ip netns del ${uid}`));
  }

  /** Has the first pods leave the mesh and join it again. */
  async leaveAndJoin(count: number): Promise<void> {
    const uids = this.pods.slice(0, count);
    await Promise.all(uids.map((uid) => this.#write(uid, false)));
    await this.#states({ enabled: this.pods.length - count, outside: count });
    await Promise.all(uids.map((uid) => this.#write(uid, true)));
    await this.#states({ enabled: this.pods.length, outside: 0 });
  }

  async usage(): Promise<AgentUsage> {
    const proc = `/proc/${this.#pid}`;
    const fds = await readdir(join(proc, 'fd'));
    const { dev } = await stat('/proc/self/ns/net');
    const files = await Promise.all(
      // The descriptor may be closed by now.
      fds.map((fd) => stat(join(proc, 'fd', fd)).catch(() => null)),
    );
    const times = (await readFile(join(proc, 'stat'), 'utf8')).split(') ')[1]?.split(' ') ?? [];
    return {
      name: 'node-agent',
      descriptors: fds.length,
      ownBytes: await ownBytes(this.#pid),
      namespaces: new Set(files.flatMap((file) => (file?.dev === dev ? [file.ino] : []))),
      cpuSeconds: times.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS,
    };
  }

  /** The namespaces that the agent holds and that are no pod's. */
  async strays({ namespaces }: AgentUsage): Promise<number> {
    const paths = ['/proc/self/ns/net', ...this.pods.map((uid) => `/run/netns/${uid}`)];
    const known = new Set(await Promise.all(paths.map(async (path) => (await stat(path)).ino)));
    return [...namespaces].filter((inode) => !known.has(inode)).length;
  }

  async dispose(): Promise<void> {
    await sh(this.pods.map((uid) => `ip netns del ${uid}`));
  }

  #write(uid: string, member: boolean): Promise<void> {
    const whole = podRecord({ uid, netns: `/run/netns/${uid}` });
    return writeRecord(this.#site.podsDir, uid, member ? whole : { ...whole, labels: {} });
  }

  async #states(wanted: { readonly enabled: number; readonly outside: number }): Promise<void> {
    const all = { waiting: 0, pending: 0, leaving: 0, ...wanted };
    await until(
      async () => {
        const question = { socket: this.#admin, path: '/node-agent/status' };
        const { pods } = await askJson<{ pods: Record<string, number> }>(question);
        return Object.entries(all).every(([state, count]) => pods[state] === count);
      },
      { what: `the states ${JSON.stringify(all)}`, timeoutMs: ENROL_TIMEOUT_MS },
    );
  }
}

async function startNode(owner: SiteOwner): Promise<EnrolledNode> {
  raiseFileLimit();
  const site = await agentSite(owner);
  const admin = join(dirname(site.podsDir), 'admin.sock');
  const environment = { ...site.environment, WEFT_ADMIN_ADDRESS: `unix:${admin}` };
  const child = spawnAgent(owner, { ...site, environment });
  const { pid } = child;
  if (pid === undefined) throw new Error('the agent did not start');
  const proxy = new ServingProxy(site.socket);
  owner.teardown(() => proxy.stop());
  proxy.client.start();
  const node = new EnrolledNode(site, pid, admin);
  owner.teardown(() => node.dispose());
  return node;
}

/** How long a soak of enrolments is. */
export interface EnrolmentSoak {
  readonly pods: number;
  /** How many enrolments follow the first of each pod. */
  readonly enrolments: number;
  /** Seconds after which no further round begins. */
  readonly seconds: number;
}

/** Soaks a node agent; returns its failures. */
export async function soakEnrolments(
  { pods, ...limits }: EnrolmentSoak,
  say: (text: string) => void,
): Promise<readonly string[]> {
  await using made = new AsyncDisposableStack();
  const owner = {
    teardown: (end: () => void | Promise<void>): void => made.defer(end),
    log: say,
  };
  const node = await startNode(owner);
  // The first pod finds the agent started, and its code compiled.
  await node.add(1);
  const idle = await node.usage();
  const joiningAtMs = performance.now();
  await node.add(pods - 1);
  const joinSeconds = (performance.now() - joiningAtMs) / 1_000;
  const before = await node.usage();
  say(`${pods} pods enrolled after ${joinSeconds.toFixed(1)} s`);

  const startMs = performance.now();
  const samples: { readonly usage: AgentUsage; readonly atMs: number }[] = [];
  const endMs = startMs + 1_000 * limits.seconds;
  let enrolments = 0;
  for (let round = 0; enrolments < limits.enrolments && performance.now() < endMs; round += 1) {
    const count = Math.min(ROUND_PODS, pods, limits.enrolments - enrolments);
    if (round % 2 === 0) {
      await node.leaveAndJoin(count);
    } else {
      await node.remove(count);
      await node.add(count);
    }
    enrolments += count;
    samples.push({ usage: await node.usage(), atMs: performance.now() - startMs });
    if (round % 20 === 19) say(`${enrolments} enrolments`);
  }
  const seconds = (performance.now() - startMs) / 1_000;
  const after = await node.usage();
  const strays = await node.strays(after);
  await node.remove(pods - 1);
  const alone = await node.usage();

  const thirds = [1, 2, 3].map((third) => {
    const from = Math.floor(((third - 1) * samples.length) / 3);
    return samples.slice(from, Math.floor((third * samples.length) / 3) || 1);
  });
  const lows = thirds.map((part) =>
    part.map(({ usage }) => [usage] as readonly Usage[]).reduce(least, [after]),
  );
  const problems = [
    ...heldDescriptors([before], [after]),
    ...heldDescriptors([idle], [alone]),
    ...(strays > 0 ? [`${strays} namespaces of no pod are held`] : []),
    ...(after.namespaces.size < pods ? [`only ${after.namespaces.size} namespaces are held`] : []),
    ...grownMemory(lows[1] ?? [], lows[2] ?? [], seconds),
  ];
  const cpu = (from: AgentUsage, to: AgentUsage, count: number): string =>
    `${((1_000 * (to.cpuSeconds - from.cpuSeconds)) / Math.max(1, count)).toFixed(0)} ms of processor time each`;
  const times = thirds.map((part) => ((part.at(-1)?.atMs ?? 0) / 1_000).toFixed(0));
  process.stdout.write(
    [
      `soak ${problems.length === 0 ? 'ok' : `FAILED (${problems.length})`}: ${pods} pods enrolled in ${joinSeconds.toFixed(1)} s`,
      cpu(idle, before, pods - 1),
      `${enrolments} of ${limits.enrolments} more in ${seconds.toFixed(0)} s`,
      cpu(before, after, enrolments),
      `thirds ended after ${times.join(', ')} s`,
      `descriptors ${idle.descriptors} → ${before.descriptors} → ${after.descriptors} → ${alone.descriptors}`,
      `namespaces ${before.namespaces.size} → ${after.namespaces.size} → ${alone.namespaces.size}`,
      `memory ${[[idle], [before], ...lows, [after], [alone]].map(([one]) => (one === undefined ? '' : mib(one))).join(', ')} MiB`,
    ].join('; ') + '\n',
  );
  return problems;
}

async function sh(commands: readonly string[]): Promise<void> {
  const child = spawn('sh', ['-e', '-s'], { stdio: ['pipe', 'ignore', 'inherit'] });
  child.stdin.end(`${commands.join('\n')}\n`);
  const [status] = (await once(child, 'exit')) as [number | null];
  if (status !== 0) throw new Error(`a command for namespaces ended with ${status}`);
}

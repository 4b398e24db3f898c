/** A node agent alone on its node, with pods that are empty network namespaces. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { raiseFileLimit } from '../../lib/linux/process.ts';
import { netnsName } from '../support/leftovers.ts';
import { agentSite } from '../support/node-agent-kit.ts';
import type { SiteOwner } from '../support/node-agent-kit.ts';
import { podRecord, removeRecord, writeRecord } from '../support/pod-records.ts';
import { ServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';
import { AgentProcess } from './agent-process.ts';
import type { AgentUsage } from './agent-process.ts';

/** A round takes seconds; a thousand pods that come at once take minutes on a busy machine. */
const ENROL_TIMEOUT_MS = 900_000;

/** A node agent in a process of its own, a proxy that serves its pods, and the pods. */
export class EnrolledNode {
  readonly agent: AgentProcess;
  readonly #podsDir: string;
  /** Uids, which are the names of the namespaces. */
  readonly pods: string[] = [];
  #made = 0;

  private constructor(agent: AgentProcess, podsDir: string) {
    this.agent = agent;
    this.#podsDir = podsDir;
  }

  /** Starts agent and proxy; `owner` ends them and removes the namespaces. */
  static async start(owner: SiteOwner): Promise<EnrolledNode> {
    raiseFileLimit();
    const site = await agentSite(owner);
    const agent = AgentProcess.start(owner, site);
    const proxy = new ServingProxy(site.socket);
    owner.teardown(() => proxy.stop());
    proxy.client.start();
    const node = new EnrolledNode(agent, site.podsDir);
    owner.teardown(() => sh(node.pods.map((uid) => `ip netns del ${uid}`)));
    return node;
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
    await Promise.all(uids.map((uid) => removeRecord(this.#podsDir, uid)));
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

  /** The namespaces that the agent holds and that are no pod's. */
  async strays({ namespaces }: AgentUsage): Promise<number> {
    const paths = ['/proc/self/ns/net', ...this.pods.map((uid) => `/run/netns/${uid}`)];
    const known = new Set(await Promise.all(paths.map(async (path) => (await stat(path)).ino)));
    return [...namespaces].filter((inode) => !known.has(inode)).length;
  }

  #write(uid: string, member: boolean): Promise<void> {
    const whole = podRecord({ uid, netns: `/run/netns/${uid}` });
    return writeRecord(this.#podsDir, uid, member ? whole : { ...whole, labels: {} });
  }

  async #states(wanted: { readonly enabled: number; readonly outside: number }): Promise<void> {
    const all = { waiting: 0, pending: 0, leaving: 0, ...wanted };
    await until(
      async () => {
        const pods = await this.agent.pods();
        return Object.entries(all).every(([state, count]) => pods[state] === count);
      },
      { what: `the states ${JSON.stringify(all)}`, timeoutMs: ENROL_TIMEOUT_MS },
    );
  }
}

async function sh(commands: readonly string[]): Promise<void> {
  const child = spawn('sh', ['-e', '-s'], { stdio: ['pipe', 'ignore', 'inherit'] });
  child.stdin.end(`${commands.join('\n')}\n`);
  const [status] = (await once(child, 'exit')) as [number | null];
  if (status !== 0) throw new Error(`a command for namespaces ended with ${status}`);
}

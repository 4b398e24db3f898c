/** Runs a mesh for the benchmark through the `weft` command, as a user would. */
import { randomBytes } from 'node:crypto';
import { eventually, memoryOf, output } from './process.ts';
import type { Memory } from './process.ts';

const weft = new URL('../../../services/cli/weft', import.meta.url).pathname;
const manifests = new URL('../manifests/nodes', import.meta.url).pathname;

/** A pod as the benchmark uses it. */
export interface BenchPod {
  readonly netns: string;
  readonly ip: string;
}

interface PodLine {
  readonly namespace: string;
  readonly name: string;
  readonly ip: string;
  readonly netns: string;
  readonly enrolled: boolean;
}

interface StatusDocument {
  readonly ready: boolean;
  readonly actors: readonly { name: string; node: string | null; pid: number }[];
  readonly redis: { readonly pid: number };
}

/** The running mesh. */
export class BenchMesh {
  readonly name = `bench${randomBytes(3).toString('hex')}`;

  /** Brings the mesh up, without the `external` actors; rejects with the command's output on failure. */
  async up(external: readonly string[] = []): Promise<void> {
    const own = external.length === 0 ? ['--wait'] : ['--external', external.join(',')];
    await this.weft('up', '--detach', ...own, '--manifests', manifests);
  }

  /** Takes everything down. */
  async down(): Promise<void> {
    await this.weft('down');
  }

  /** Runs a `weft` command on this mesh. */
  weft(command: string, ...args: string[]): Promise<string> {
    return output(weft, [command, '--mesh', this.name, ...args]);
  }

  /** Finds a pod of the manifests. */
  async pod(namespace: string, name: string): Promise<BenchPod> {
    return eventually(`pod ${namespace}/${name}`, 30_000, async () => {
      const pods = JSON.parse(await this.weft('get', 'pods', '-o', 'json')) as PodLine[];
      const pod = pods.find((line) => line.namespace === namespace && line.name === name);
      if (pod === undefined) throw new Error('not listed');
      const netns = pod.netns.startsWith('/') ? pod.netns : `/run/netns/${pod.netns}`;
      return { netns, ip: pod.ip };
    });
  }

  /** Returns the path of a node's network namespace. */
  node(name: string): string {
    return `/run/netns/${this.name}-${name}`;
  }

  /** Reads the output of `weft status`. */
  async status(): Promise<StatusDocument> {
    return JSON.parse(await this.weft('status', '-o', 'json')) as StatusDocument;
  }

  /** Reads the memory of each role: the largest process of each. */
  async memory(): Promise<ReadonlyMap<string, Memory>> {
    const roles = new Map<string, Memory>();
    for (const { name, pid } of (await this.status()).actors) {
      const memory = await memoryOf(pid);
      if (memory.own > (roles.get(name)?.own ?? 0)) roles.set(name, memory);
    }
    return roles;
  }

  /** Lists the process ids of an actor, by node. */
  async pids(actor: string): Promise<readonly number[]> {
    return (await this.status()).actors
      .filter((line) => line.name === actor)
      .map((line) => line.pid);
  }
}

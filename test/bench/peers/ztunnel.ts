/** Runs a mesh of its own whose nodes have a ztunnel as their proxy: Weft's control plane, CA, node agent and rules are the same. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { processEnvironment } from '../../../lib/config/env.ts';
import { BenchMesh } from '../lib/mesh.ts';
import { eventually } from '../lib/process.ts';

const NODES = ['node-1', 'node-2'] as const;

/** The path of a ztunnel; undefined when the environment names none. */
export const ztunnelProgram = processEnvironment()['WEFT_ZTUNNEL'];
// The commands that this process runs refuse a setting that they do not know.
Reflect.deleteProperty(processEnvironment(), 'WEFT_ZTUNNEL');

/** The mesh, while it runs. */
export class ZtunnelMesh {
  readonly mesh = new BenchMesh();
  readonly #running: ChildProcess[] = [];

  /** Process ids of both proxies. */
  get pids(): readonly number[] {
    return this.#running.map(({ pid }) => pid ?? 0);
  }

  /** Brings it up. A failure leaves it to `down`. */
  async up(program: string): Promise<void> {
    await this.mesh.up(NODES.map((node) => `${node}/node-proxy`));
    for (const node of NODES) {
      const environment = await this.mesh.weft('env', `${node}/node-proxy`);
      const start = `exec nsenter --net=${this.mesh.node(node)} ${program}`;
      const script = `${environment}\nexport RUST_LOG=info\n${start}`;
      // In a session of its own, as actors are.
      this.#running.push(spawn('sh', ['-c', script], { stdio: 'ignore', detached: true }));
    }
    await eventually('the mesh of ztunnels to be ready', 60_000, async () => {
      const { ready } = await this.mesh.status();
      if (!ready) throw new Error('not ready');
    });
  }

  async down(): Promise<void> {
    for (const program of this.#running) {
      const closed = once(program, 'close');
      if (program.exitCode === null && program.kill('SIGTERM')) await closed;
    }
    await this.mesh.down();
  }
}

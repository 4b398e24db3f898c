/** One of a node's node-proxy processes: a generation, or a sibling. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { request } from '../../lib/http/node-http.ts';
import { bareEnvironment } from './bare-environment.ts';
import type { TestNetns } from './netns-kit.ts';
import { until } from './until.ts';

const ENTRY = fileURLToPath(new URL('./node-proxy-process.ts', import.meta.url));

/** Fewer descriptors than a proxy needs. */
const INITIAL_DESCRIPTORS = 64;

/** The process, its log and its admin server. */
export class ProxyProcess {
  readonly lines: Record<string, unknown>[] = [];
  readonly child: ChildProcess;
  /** Resolves with the exit status, null after a signal. */
  readonly ended: Promise<number | null>;
  readonly #admin: string;

  /** `descriptors` is the process's hard limit. It starts with a lower soft limit and raises it itself. */
  constructor(
    netns: TestNetns,
    adminSocket: string,
    environment: Record<string, string>,
    descriptors?: number,
  ) {
    this.#admin = adminSocket;
    const limit =
      descriptors === undefined
        ? []
        : ['prlimit', `--nofile=${INITIAL_DESCRIPTORS}:${descriptors}`];
    const [command, ...args] = [...limit, process.execPath, ENTRY];
    this.child = netns.spawn(command, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: bareEnvironment({ ...environment, WEFT_ADMIN_ADDRESS: `unix:${adminSocket}` }),
    });
    // `close` comes after the log has been read to the end.
    this.ended = once(this.child, 'close').then(([code]) => code as number | null);
    let rest = '';
    this.child.stdout?.on('data', (chunk: Buffer) => {
      const parts = (rest + chunk.toString()).split('\n');
      rest = parts.pop() ?? '';
      for (const line of parts) this.lines.push(JSON.parse(line) as Record<string, unknown>);
    });
    this.child.stderr?.on('data', (chunk: Buffer) => this.lines.push({ stderr: chunk.toString() }));
  }

  async ready(): Promise<void> {
    try {
      await until(async () => (await this.pending()) === 'ready', {
        what: 'the proxy to be ready',
        timeoutMs: 30_000,
      });
    } catch (error) {
      const lines = this.lines.slice(-20).map((line) => JSON.stringify(line));
      throw new Error(`not ready; its log:\n${lines.join('\n')}`, { cause: error });
    }
  }

  /** Returns what readiness waits for, as text; null while the process does not answer. */
  async pending(): Promise<string | null> {
    return (await this.#get('/healthz/ready'))?.trim() ?? null;
  }

  async json<T>(path: string): Promise<T> {
    const text = await this.#get(path);
    if (text === null) throw new Error(`no answer to ${path}`);
    return JSON.parse(text) as T;
  }

  async text(path: string): Promise<string> {
    return (await this.#get(path)) ?? '';
  }

  logged(message: string): Record<string, unknown>[] {
    return this.lines.filter((line) => line['message'] === message);
  }

  kill(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  #get(path: string): Promise<string | null> {
    return new Promise((resolve) => {
      const call = request({ socketPath: this.#admin, path, agent: false }, (response) => {
        let body = '';
        response.on('data', (chunk: Buffer) => (body += chunk.toString()));
        response.on('end', () => resolve(body));
      });
      call.on('error', () => resolve(null));
      call.end();
    });
  }
}

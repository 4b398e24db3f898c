/** The node agent under soak: a process as the launcher starts it, which also collects its garbage when it is asked. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile, readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { askJson } from '../../services/local-mesh/unix-http.ts';
import { bareEnvironment } from '../support/bare-environment.ts';
import { killed } from '../support/node-agent-kit.ts';
import type { AgentSite, SiteOwner } from '../support/node-agent-kit.ts';
import { ownBytes } from './resources.ts';
import type { HeldMemory, Usage } from './resources.ts';

const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;
/** Clock ticks a second, in `/proc/<pid>/stat`. */
const TICKS = 100;

/** The agent's process at one moment. */
export interface AgentUsage extends Usage {
  /** Inodes of the network namespaces that it holds. */
  readonly namespaces: ReadonlySet<number>;
  /** Its processor time, with that of the programs that it ran. */
  readonly cpuSeconds: number;
}

/** Answers each message of the parent process with the heap in use after a whole collection. Must use no name of this module. */
function answerWithHeap(): void {
  process.on('message', () => {
    if (globalThis.gc === undefined) throw new Error('the launcher no longer sets --expose-gc');
    globalThis.gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
    process.send?.(process.memoryUsage().heapUsed);
  });
  process.channel?.unref();
}

/** The source of {@link answerWithHeap} without its types, so that no type stripper is loaded into the process that is measured. */
const PRELOADED = `data:text/javascript,${encodeURIComponent(`(${answerWithHeap.toString()})()`)}`;

/** A running agent. */
export class AgentProcess {
  readonly #child: ChildProcess;
  readonly #pid: number;
  readonly #admin: string;

  private constructor(child: ChildProcess, pid: number, admin: string) {
    this.#child = child;
    this.#pid = pid;
    this.#admin = admin;
  }

  /** Starts it at the site; `owner` ends it. */
  static start(owner: SiteOwner, site: AgentSite): AgentProcess {
    const admin = join(dirname(site.podsDir), 'admin.sock');
    const child = spawn(WEFT, ['run', 'node-agent'], {
      env: bareEnvironment({
        NODE_NAME: 'node-1',
        ...site.environment,
        WEFT_ADMIN_ADDRESS: `unix:${admin}`,
        NODE_OPTIONS: `--import=${PRELOADED}`,
      }),
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    owner.teardown(() => killed(child));
    if (child.pid === undefined) throw new Error('the agent did not start');
    return new AgentProcess(child, child.pid, admin);
  }

  /** Asks for the number of its pods by state. */
  async pods(): Promise<Readonly<Record<string, number>>> {
    const question = { socket: this.#admin, path: '/node-agent/status' };
    return (await askJson<{ pods: Record<string, number> }>(question)).pods;
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

  /** Collects its garbage and tells what is left. */
  async held(): Promise<HeldMemory> {
    const answered = once(this.#child, 'message') as Promise<[number]>;
    const ended = once(this.#child, 'exit').then(() => {
      throw new Error('the agent ended');
    });
    this.#child.send('collect');
    const [heapBytes] = await Promise.race([answered, ended]);
    return { heapBytes, ownBytes: await ownBytes(this.#pid) };
  }
}

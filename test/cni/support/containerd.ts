/** Debian's containerd with folders, a socket and a network of its own. */
import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client, credentials } from '@grpc/grpc-js';
import type { ExecutionContext } from 'ava';
import protobuf from 'protobufjs';
import type { NetnsIdentity } from '../../../lib/linux/netns.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import type { TestNetns } from '../../support/netns-kit.ts';
import { findProgram } from '../../support/programs.ts';
import { until } from '../../support/until.ts';
import type { CniPrograms } from './programs.ts';

const run = promisify(execFile);
const IMAGE = 'weft.test/pause:1';
const CALL_MS = 60_000;

/** Messages with which kubelet starts and stops sandboxes (cri-api v1). */
const MESSAGES = `
syntax = "proto3";
message Metadata { string name = 1; string uid = 2; string namespace = 3; uint32 attempt = 4; }
message Config { Metadata metadata = 1; string hostname = 2; string log_directory = 3; map<string, string> labels = 6; }
message RunRequest { Config config = 1; }
message RunResponse { string pod_sandbox_id = 1; }
message IdRequest { string pod_sandbox_id = 1; bool verbose = 2; }
message Network { string ip = 1; }
message Status { Network network = 5; }
message StatusResponse { Status status = 1; map<string, string> info = 2; }
message Nothing {}
`;
const types = protobuf.parse(MESSAGES, { keepCase: true }).root;

/** A running sandbox. */
export interface Sandbox {
  readonly id: string;
  readonly address: string;
  /** Path of its network namespace, as the runtime tells it. */
  readonly netns: string;
}

/** A container runtime. The end of the test stops it. */
export class Containerd {
  readonly socket: string;
  readonly #folder: string;
  readonly #client: Client;
  readonly #sandboxes: string[] = [];
  #daemon: ChildProcess | null = null;

  private constructor(folder: string) {
    this.#folder = folder;
    this.socket = join(folder, 'c.sock');
    this.#client = new Client(`unix:${this.socket}`, credentials.createInsecure(), {
      'grpc.default_authority': 'localhost',
    });
  }

  /** Why it cannot run here; null when it can. */
  static unavailable(): string | null {
    if (process.getuid?.() !== 0) return 'containerd needs root';
    const absent = ['containerd', 'ctr', 'runc', 'g++'].find((name) => findProgram(name) === null);
    return absent === undefined ? null : `${absent} is not installed (sh infra/setup.sh --docker)`;
  }

  /** Starts one whose sandboxes get addresses of a bridge in `host`. */
  static async start(
    t: ExecutionContext,
    host: TestNetns,
    programs: CniPrograms,
  ): Promise<Containerd> {
    const folder = await mkdtemp(join(tmpdir(), 'weft-cri-'));
    const runtime = new Containerd(folder);
    t.teardown(async () => {
      if (runtime.#sandboxes.length > 0) await runtime.#remove(host);
      await runtime.stop();
      runtime.#client.close();
      await rm(folder, { recursive: true, force: true });
    });
    await runtime.#configure(programs);
    await runtime.#launch(host);
    await runtime.#importImage();
    return runtime;
  }

  /** Sandboxes outlive the daemon. */
  async #remove(host: TestNetns): Promise<void> {
    if (this.#daemon === null) await this.#launch(host);
    for (const id of this.#sandboxes) {
      await this.stopSandbox({ id });
      await this.#call('RemovePodSandbox', 'IdRequest', 'Nothing', { pod_sandbox_id: id });
    }
  }

  async #launch(host: TestNetns): Promise<void> {
    // Not by ip-netns, whose mounts are its own: the namespaces of sandboxes are mounts.
    const daemon = spawn(
      'nsenter',
      [`--net=${host.path}`, 'containerd', '--config', join(this.#folder, 'config.toml')],
      { stdio: ['ignore', 'ignore', 'pipe'] },
    );
    this.#daemon = daemon;
    let log = '';
    daemon.stderr.on('data', (chunk: Buffer) => (log = (log + chunk.toString()).slice(-4_000)));
    await until(
      async () => {
        if (daemon.exitCode !== null) throw new Error(`containerd ended: ${log}`);
        await this.#ctr('version');
        return true;
      },
      { what: 'containerd' },
    );
  }

  async #configure(programs: CniPrograms): Promise<void> {
    const [binDir, netDir] = [join(this.#folder, 'bin'), join(this.#folder, 'net.d')];
    await mkdir(binDir);
    await mkdir(netDir);
    for (const name of ['bridge', 'host-local', 'loopback'] as const) {
      await copyFile(programs[name], join(binDir, name));
    }
    const ipam = {
      type: 'host-local',
      subnet: '10.78.0.0/16',
      dataDir: join(this.#folder, 'ipam'),
    };
    await writeFile(
      join(netDir, '10-test.conflist'),
      JSON.stringify({
        cniVersion: '0.4.0',
        name: 'weft-cri',
        plugins: [{ type: 'bridge', bridge: 'cni0', isGateway: true, ipam }],
      }),
    );
    const cri = 'plugins."io.containerd.grpc.v1.cri"';
    await writeFile(
      join(this.#folder, 'config.toml'),
      `version = 2
root = "${join(this.#folder, 'root')}"
state = "${join(this.#folder, 'state')}"
[grpc]
address = "${this.socket}"
[ttrpc]
address = "${this.socket}.ttrpc"
[${cri}]
sandbox_image = "${IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
stream_server_port = "0"
[${cri}.containerd]
snapshotter = "native"
[${cri}.cni]
bin_dir = "${binDir}"
conf_dir = "${netDir}"
`,
    );
  }

  /** An image with one static program, which waits. No registry is asked. */
  async #importImage(): Promise<void> {
    const folder = join(this.#folder, 'image');
    await mkdir(join(folder, 'layer'), { recursive: true });
    await writeFile(
      join(folder, 'pause.cc'),
      '#include <unistd.h>\nint main() { for (;;) pause(); }\n',
    );
    await run('g++', [
      '-static',
      '-Os',
      '-s',
      '-o',
      join(folder, 'layer/pause'),
      join(folder, 'pause.cc'),
    ]);
    await run('tar', ['-C', join(folder, 'layer'), '-cf', join(folder, 'layer.tar'), 'pause']);
    const layer = createHash('sha256')
      .update(await readFile(join(folder, 'layer.tar')))
      .digest('hex');
    const config = {
      architecture: process.arch === 'x64' ? 'amd64' : process.arch,
      os: 'linux',
      config: { Entrypoint: ['/pause'] },
      rootfs: { type: 'layers', diff_ids: [`sha256:${layer}`] },
    };
    await writeFile(join(folder, 'config.json'), JSON.stringify(config));
    const manifest = [{ Config: 'config.json', RepoTags: [IMAGE], Layers: ['layer.tar'] }];
    await writeFile(join(folder, 'manifest.json'), JSON.stringify(manifest));
    const archive = join(folder, 'image.tar');
    await run('tar', ['-C', folder, '-cf', archive, 'manifest.json', 'config.json', 'layer.tar']);
    await this.#ctr(
      '--namespace',
      'k8s.io',
      'images',
      'import',
      '--snapshotter',
      'native',
      archive,
    );
  }

  async #ctr(...args: readonly string[]): Promise<void> {
    await run('ctr', ['--address', this.socket, ...args]);
  }

  #call(
    method: string,
    request: string,
    response: string,
    message: Readonly<Record<string, unknown>>,
  ): Promise<Readonly<Record<string, unknown>>> {
    const [asked, answered] = [types.lookupType(request), types.lookupType(response)];
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        `/runtime.v1.RuntimeService/${method}`,
        (value: object) => Buffer.from(asked.encode(asked.fromObject(value)).finish()),
        (bytes) => answered.toObject(answered.decode(bytes)),
        message,
        { deadline: Date.now() + CALL_MS },
        (error, answer) => {
          if (error === null) resolve(answer as Readonly<Record<string, unknown>>);
          else reject(error);
        },
      );
    });
  }

  /** Starts a sandbox as kubelet does. */
  async sandbox(name: string, uid: string, attempt = 0): Promise<Sandbox> {
    const { pod_sandbox_id: id } = await this.#call('RunPodSandbox', 'RunRequest', 'RunResponse', {
      config: {
        metadata: { name, uid, namespace: 'demo', attempt },
        hostname: name,
        labels: { 'io.kubernetes.pod.uid': uid, 'io.kubernetes.pod.name': name },
      },
    });
    this.#sandboxes.push(String(id));
    const verbose = { pod_sandbox_id: id, verbose: true };
    const told = await this.#call('PodSandboxStatus', 'IdRequest', 'StatusResponse', verbose);
    const { status, info } = told as {
      readonly status: { readonly network: { readonly ip: string } };
      readonly info: { readonly info: string };
    };
    const { runtimeSpec } = JSON.parse(info.info) as {
      readonly runtimeSpec: {
        readonly linux: { readonly namespaces: readonly { type: string; path?: string }[] };
      };
    };
    const netns = runtimeSpec.linux.namespaces.find(({ type }) => type === 'network')?.path ?? '';
    return { id: String(id), address: status.network.ip, netns };
  }

  /** Tells which namespace a sandbox has, by the path that the runtime mounted it at. */
  async netnsOf({ netns }: Sandbox): Promise<NetnsIdentity> {
    const handle = NetnsHandle.open(netns);
    const { identity } = handle;
    handle.release();
    return identity;
  }

  async stopSandbox({ id }: Pick<Sandbox, 'id'>): Promise<void> {
    await this.#call('StopPodSandbox', 'IdRequest', 'Nothing', { pod_sandbox_id: id });
  }

  /** Ends the daemon; sandboxes go on. */
  async stop(): Promise<void> {
    const daemon = this.#daemon;
    this.#daemon = null;
    if (daemon === null || daemon.exitCode !== null) return;
    const ended = once(daemon, 'exit');
    daemon.kill('SIGTERM');
    await ended;
  }
}

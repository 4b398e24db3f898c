/** Two nodes with real node-proxy processes, and a real Redis, CA, fetchers and ZDS sockets of the agents. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ExecutionContext } from 'ava';
import { request } from '../../lib/http/node-http.ts';
import type { TableWriter } from '../../lib/bus/table-writer.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import { NetnsHandle } from '../../lib/linux/netns-handle.ts';
import { listenTcp, openTcp } from '../../lib/linux/sockets.ts';
import { createLogger } from '../../lib/log/logger.ts';
import { connectTcp } from '../../lib/net/connect-tcp.ts';
import type { Authorization } from '../../lib/policy/model.ts';
import type { Workload } from '../../lib/state/model.ts';
import { Redirector } from '../../lib/redirect/apply.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { podRedirect } from '../../lib/redirect/pod-options.ts';
import { redirectRules } from '../../lib/redirect/rules.ts';
import { encodeWorkload } from '../../lib/xds/resources/address.ts';
import { encodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import { ZdsAgent } from '../../lib/zds/agent.ts';
import type { ZdsPod } from '../../lib/zds/agent.ts';
import { bareEnvironment } from './bare-environment.ts';
import { heldLease, openBus } from './bus.ts';
import { createCaKit } from './ca-kit.ts';
import { startFetcher } from './certificates-kit.ts';
import { connectNetns, createHub, createNetns } from './netns-kit.ts';
import type { TestNetns } from './netns-kit.ts';
import { podObject } from './pods-api.ts';
import { ProxyProcess } from './proxy-process.ts';
import { startTestRedis } from './redis.ts';
import type { TestRedis } from './redis.ts';
import { until } from './until.ts';
import { workload } from './workloads.ts';

const ENTRY = fileURLToPath(new URL('./node-proxy-process.ts', import.meta.url));
/** Longer than the data path waits for a certificate, a workload or a connection. */
const ANSWER_MS = 60_000;
export const NODES = ['node-1', 'node-2'] as const;
export type NodeName = (typeof NODES)[number];

/** A pod in a namespace of its own. */
export interface ProxiedPod {
  readonly name: string;
  readonly ip: string;
  readonly node: NodeName;
  readonly zds: ZdsPod;
  readonly netns: TestNetns;
  readonly netnsFd: number;
  serve(port: number, onSocket: (socket: Socket) => void): Promise<void>;
  connect(ip: string, port: number): Promise<Socket>;
}

/** A node: its namespace, the agent's socket, its node-proxy process. */
export class ProxyNode {
  readonly name: NodeName;
  readonly netns: TestNetns;
  readonly pods = new Map<string, ZdsPod>();
  readonly agent: ZdsAgent;
  readonly lines: Record<string, unknown>[] = [];
  readonly crashFile: string;
  readonly #environment: Record<string, string>;
  readonly #dir: string;
  readonly #adminSocket: string;
  #processes = 0;
  #child: ChildProcess | null = null;

  constructor(name: NodeName, netns: TestNetns, dir: string, environment: Record<string, string>) {
    this.name = name;
    this.netns = netns;
    this.crashFile = join(dir, `${name}.crash`);
    this.#dir = dir;
    this.#adminSocket = join(dir, `${name}.admin`);
    const zdsPath = join(dir, `${name}.zds`);
    this.#environment = {
      ...environment,
      NODE_NAME: name,
      INPOD_UDS: zdsPath,
      WEFT_ADMIN_ADDRESS: `unix:${this.#adminSocket}`,
      LISTENER_DIES_WITH: this.crashFile,
    };
    this.agent = new ZdsAgent({
      path: zdsPath,
      mode: 0o600,
      clock: systemClock,
      log: createLogger({ actor: 'test', level: 'silent' }),
      snapshot: () => this.pods.values(),
      onProxies: () => undefined,
    });
    this.agent.start();
  }

  get process(): ChildProcess {
    if (this.#child === null) throw new Error('not started');
    return this.#child;
  }

  start(): void {
    const child = this.netns.spawn(process.execPath, [ENTRY], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: bareEnvironment(this.#environment),
    });
    this.#child = child;
    let rest = '';
    child.stdout?.on('data', (chunk: Buffer) => {
      const parts = (rest + chunk.toString()).split('\n');
      rest = parts.pop() ?? '';
      for (const line of parts) this.lines.push(JSON.parse(line) as Record<string, unknown>);
    });
    child.stderr?.on('data', (chunk: Buffer) => this.lines.push({ stderr: chunk.toString() }));
  }

  /** Starts another process of the node, of this generation. The caller or the end of the namespace ends it. */
  another(
    group: number,
    environment: Record<string, string> = {},
    netns: TestNetns = this.netns,
    descriptors?: number,
  ): ProxyProcess {
    this.#processes += 1;
    const { LISTENER_DIES_WITH: _, ...own } = this.#environment;
    const admin = join(this.#dir, `${this.name}.${this.#processes}.admin`);
    const whole = {
      ...own,
      WEFT_NODE_PROXY_GROUP: String(group),
      ...environment,
    };
    return new ProxyProcess(netns, admin, whole, descriptors);
  }

  async ready(): Promise<void> {
    try {
      await until(async () => (await this.get('/healthz/ready')).status === 200, {
        what: `${this.name} to be ready`,
        timeoutMs: 30_000,
      });
    } catch (error) {
      const lines = this.lines.slice(-20).map((line) => JSON.stringify(line));
      throw new Error(`${this.name} is not ready; its log:\n${lines.join('\n')}`, { cause: error });
    }
  }

  /** Requests a path of the process's admin server. */
  get(path: string): Promise<{ status: number; body: string }> {
    return new Promise((resolve, reject) => {
      const call = request({ socketPath: this.#adminSocket, path, agent: false }, (response) => {
        let body = '';
        response.on('data', (chunk: Buffer) => (body += chunk.toString()));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
      });
      call.on('error', reject);
      call.end();
    });
  }

  async json(path: string): Promise<Record<string, unknown>> {
    return JSON.parse((await this.get(path)).body) as Record<string, unknown>;
  }

  async connections(): Promise<Record<string, unknown>[]> {
    return (await this.json('/node-proxy/connections'))['connections'] as Record<string, unknown>[];
  }

  logged(message: string): Record<string, unknown>[] {
    return this.lines.filter((line) => line['message'] === message);
  }
}

export class ProxyMesh {
  readonly redis: TestRedis;
  readonly nodes: Readonly<Record<NodeName, ProxyNode>>;
  readonly tables: Readonly<Record<'addresses' | 'authorizations' | 'programs', TableWriter>>;
  /** Makes a pod's workload known to the mesh: writes it to Redis, unless a test has a control plane for that. */
  describe: (workload: Workload) => Promise<void>;
  /** Gives the part of the ingester, which writes the mesh state, to another process. */
  readonly endIngester: () => Promise<void>;
  readonly #t: ExecutionContext;
  readonly #hub: TestNetns;
  readonly #redirector: Redirector;
  #nextHost = 2;

  private constructor(
    t: ExecutionContext,
    parts: Pick<ProxyMesh, 'redis' | 'nodes' | 'tables' | 'endIngester'> & {
      hub: TestNetns;
      redirector: Redirector;
    },
  ) {
    this.#t = t;
    this.redis = parts.redis;
    this.nodes = parts.nodes;
    this.tables = parts.tables;
    this.endIngester = parts.endIngester;
    this.describe = (described) =>
      this.tables.addresses.apply([{ key: described.uid, value: encodeWorkload(described) }]);
    this.#hub = parts.hub;
    this.#redirector = parts.redirector;
  }

  /** Starts everything but the proxies. The pods named here may get certificates on their node. */
  static async start(
    t: ExecutionContext,
    placement: Readonly<Record<string, NodeName>>,
    environment: Readonly<Record<string, string>> = {},
  ): Promise<ProxyMesh> {
    const redis = await startTestRedis(t);
    const ca = await createCaKit(t, {
      pods: Object.entries(placement).map(([name, node]) =>
        podObject('demo', name, { node, account: name }),
      ),
    });
    await ca.start();
    const { bus } = openBus(t, redis.config('xds-ingester'), 'ingester');
    const lease = await heldLease(bus, 'ingest', 'mesh');
    const admin = openBus(t, redis.config(), 'admin').bus;
    const tables = {
      addresses: bus.writer('addresses', 'mesh', lease),
      authorizations: bus.writer('authorizations', 'mesh', lease),
      programs: admin.sharedWriter('programs', 'mesh'),
    };
    await tables.addresses.replaceAll([]);
    await tables.authorizations.replaceAll([]);
    await bus.writer('rejections', 'mesh', lease).replaceAll([]);
    for (const node of NODES) await startFetcher(t, ca, redis, { node });
    const hub = await createHub(t, ['10.9.0.1/24']);
    const makeNode = async (name: NodeName): Promise<ProxyNode> => {
      const node = new ProxyNode(name, await createNetns(t, name), ca.dir, {
        ...redis.environment(`node-proxy.${name}`),
        CA_ROOT_CA: ca.bundlePath,
        ZTUNNEL_WORKER_THREADS: '2',
        ...environment,
      });
      t.teardown(() => {
        if (!t.passed) for (const line of node.lines) t.log(JSON.stringify(line));
        node.agent.close();
        for (const pod of node.pods.values()) pod.netns?.release();
      });
      return node;
    };
    return new ProxyMesh(t, {
      redis,
      tables,
      endIngester: () => bus.close(),
      hub,
      nodes: { 'node-1': await makeNode('node-1'), 'node-2': await makeNode('node-2') },
      redirector: new Redirector(
        await chooseTools({ ipv6: true, force: null, lockDir: ca.dir }),
        ca.dir,
      ),
    });
  }

  /** Adds a pod with its redirection rules and its workload; its node's agent announces it from then on. */
  async addPod(name: string, node: NodeName): Promise<ProxiedPod> {
    const host = this.#nextHost;
    this.#nextHost += 1;
    const ip = `10.9.0.${host}`;
    const netns = await createNetns(this.#t, name);
    await connectNetns(
      { netns, device: 'eth0', addresses: [`${ip}/24`], gateways: ['10.9.0.1'] },
      { netns: this.#hub, device: `v${host}`, addresses: [], bridge: 'br0' },
    );
    const handle = NetnsHandle.open(netns.path);
    const options = {
      ipv6: true,
      dnsCapture: false,
      probeAddress: { v4: '169.254.7.127', v6: 'fd16:9254:7127:1337:ffff:ffff:ffff:ffff' },
    };
    await this.#redirector.apply(
      { netnsFd: handle.fd, inode: handle.identity.inode },
      redirectRules(podRedirect({}, options).options),
    );
    const described = workload({
      uid: `Kubernetes//Pod/demo/${name}`,
      name,
      addresses: [ip],
      serviceAccount: name,
      workloadName: name,
      canonicalName: name,
      node,
      clusterId: 'Kubernetes',
    });
    await this.describe(described);
    const zds: ZdsPod = {
      uid: `uid-${name}`,
      info: { name, namespace: 'demo', serviceAccount: name },
      netns: handle,
    };
    this.nodes[node].pods.set(zds.uid, zds);
    return {
      name,
      ip,
      node,
      zds,
      netns,
      netnsFd: handle.fd,
      serve: (port, onSocket) => this.#serve(handle.fd, port, onSocket),
      connect: (to, port) => this.#connect(handle.fd, to, port),
    };
  }

  /** Starts both processes and waits until they serve their pods. */
  async startProxies(): Promise<void> {
    for (const node of Object.values(this.nodes)) node.start();
    await Promise.all(Object.values(this.nodes).map((node) => node.ready()));
  }

  async applyPolicy(policy: Authorization): Promise<void> {
    const key = `${policy.namespace}/${policy.name}`;
    await this.tables.authorizations.apply([{ key, value: encodeAuthorization(policy) }]);
  }

  /** Makes a listener thread of the node die. */
  async crashThread(node: NodeName): Promise<void> {
    const { crashFile } = this.nodes[node];
    await writeFile(crashFile, '');
  }

  async #serve(netnsFd: number, port: number, onSocket: (socket: Socket) => void): Promise<void> {
    const { fd } = listenTcp({
      netnsFd,
      address: '0.0.0.0',
      port,
      mark: 0,
      reusePort: false,
      transparent: 'off',
    });
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      this.#t.teardown(() => socket.destroy());
      onSocket(socket);
    });
    server.listen({ fd });
    await once(server, 'listening');
    this.#t.teardown(() => server.close());
  }

  async #connect(netnsFd: number, ip: string, port: number): Promise<Socket> {
    const fd = openTcp({ netnsFd, family: 4, mark: 0, noDelay: true });
    const socket = await connectTcp(fd, { ip, port }, { timeoutMs: 60_000 });
    socket.on('error', () => undefined);
    // The socket is handed out paused and half-open.
    socket.on('end', () => socket.end());
    socket.resume();
    this.#t.teardown(() => socket.destroy());
    return socket;
  }
}

/** Sends a text and resolves with its answer; null when the connection ends first. */
export async function exchange(socket: Socket, text: string): Promise<string | null> {
  const ended = Promise.withResolvers<null>();
  const answered = Promise.withResolvers<string>();
  const onEnd = (): void => ended.resolve(null);
  socket.once('close', onEnd);
  socket.once('end', onEnd);
  socket.once('data', (chunk: Buffer) => answered.resolve(chunk.toString()));
  socket.write(text);
  const timer = setTimeout(() => answered.reject(new Error(`no answer to ${text}`)), ANSWER_MS);
  try {
    return await Promise.race([ended.promise, answered.promise]);
  } finally {
    clearTimeout(timer);
    socket.off('close', onEnd);
    socket.off('end', onEnd);
  }
}

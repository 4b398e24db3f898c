/** Two listener threads that serve pods in real network namespaces. The kit plays node-proxy's part. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { Authorization } from '../../lib/policy/model.ts';
import type { Server, Socket } from 'node:net';
import { join } from 'node:path';
import { BroadcastChannel, MessageChannel } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import { Piscina, queueOptionsSymbol } from 'piscina';
import type { ExecutionContext } from 'ava';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import { closeFd, netnsIdentity, openNetns } from '../../lib/linux/netns.ts';
import { listenTcp, openTcp } from '../../lib/linux/sockets.ts';
import { ipFamily } from '../../lib/net/address.ts';
import { newBudgetMemory } from '../../lib/net/node-budget.ts';
import { connectTcp } from '../../lib/net/connect-tcp.ts';
import { Redirector } from '../../lib/redirect/apply.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { podRedirect } from '../../lib/redirect/pod-options.ts';
import { redirectRules } from '../../lib/redirect/rules.ts';
import type { RevocationLists } from '../../lib/identity/crl.ts';
import { introduce } from '../../services/node-proxy/pool/introduce.ts';
import type { Workload } from '../../lib/state/model.ts';
import type { ConnectionRecord } from '../../workers/listener/protocol/connections.ts';
import type {
  ControlFromThread,
  ControlToThread,
  MetricSample,
  PodInfo,
} from '../../workers/listener/protocol/control.ts';
import type { ListenerSettings } from '../../workers/listener/protocol/settings.ts';
import { connectNetns, createHub, createNetns } from './netns-kit.ts';
import type { TestNetns } from './netns-kit.ts';
import { TestState } from './test-state.ts';
import { SeriesReader } from '../../lib/metrics/series-memory.ts';
import { samplesOf } from './series.ts';
import { createTunnelPki, credentials } from './tunnel-pki.ts';
import type { IssueOptions, TunnelPki } from './tunnel-pki.ts';
import { until } from './until.ts';
import { workload } from './workloads.ts';
import { makeScratch } from './leftovers.ts';

const ENTRY = join(import.meta.dirname, 'logged-listener.worker.ts');

export const listenerSettings: ListenerSettings = {
  node: 'node-1',
  network: '',
  clusterDomain: 'cluster.local',
  ipv6: true,
  packetMark: 0x539,
  portReuse: true,
  originalSource: 'auto',
  keepalive: { enabled: true, timeMs: 180_000, intervalMs: 180_000, retries: 9 },
  userTimeoutMs: 0,
  tunnelUserTimeoutMs: 15_000,
  limits: {
    connections: null,
    handshakes: 4_000,
    bytes: 268_435_456,
    bytesPerPod: 67_108_864,
    connectionsPerPod: null,
  },
  http2: {
    streamWindow: 4_194_304,
    connectionWindow: 16_777_216,
    frameSize: 1_048_576,
    maxStreamsPerConnection: 100,
    idleReleaseMs: 300_000,
    pingIntervalMs: 10_000,
    pingTimeoutMs: 20_000,
  },
  // Far longer than any connection takes, so that a busy machine does not look like a dead peer.
  connectTimeoutMs: 30_000,
  handshakeTimeoutMs: 30_000,
  connectRetry: { attempts: 3, totalMs: 90_000 },
  responseBaggage: true,
  tls12: false,
  compliance: null,
  revocation: false,
  distrustGraceMs: 60_000,
  policyUnknownReference: 'deny',
  waypointBypass: 'deny',
  localhostAppTunnel: true,
  authzInfoLogging: false,
  sameNodeFastPath: false,
  logLevel: 'info',
  logFormat: 'json',
  accessLog: { rules: 'all', linesPerSecond: 0 },
  ports: { outbound: 15_001, inboundPlaintext: 15_006, inboundHbone: 15_008, socks5: null },
  resolvConf: '/etc/resolv.conf',
  dns: null,
};

type Line = Record<string, string | number | null>;

interface Thread {
  readonly number: number;
  readonly id: number;
  readonly control: MessagePort;
  readonly series: SeriesReader;
}

/** A pod in its own namespace. */
export interface TestPod {
  readonly name: string;
  readonly ip: string;
  readonly ip6: string;
  readonly netns: TestNetns;
  readonly netnsFd: number;
  readonly info: PodInfo;
  readonly workload: Workload;
  /** Resolves when the pod's task has ended. */
  readonly task: Promise<void>;
  /** Serves TCP connections inside the pod, both families. */
  serve(port: number, onSocket: (socket: Socket) => void): Promise<Server>;
  /** Connects from inside the pod, as its application would. */
  connect(ip: string, port: number): Promise<Socket>;
}

export class TestMesh {
  readonly state: TestState;
  readonly lines: Line[] = [];
  readonly pods = new Map<string, TestPod>();
  /** How certificates are issued; a test may change it. */
  issue: IssueOptions = {};
  /** Identities for which no certificate is issued. */
  readonly refused = new Set<string>();
  readonly #t: ExecutionContext;
  readonly #settings: ListenerSettings;
  readonly #hub: TestNetns;
  /** The authority that issues all certificates. */
  readonly pki: TunnelPki;
  /** Chains issued so far, PEM, the latest of each identity. */
  readonly chains = new Map<string, string>();
  readonly #piscina: Piscina;
  readonly #threads: Thread[] = [];
  readonly #redirector: Redirector;
  readonly #events: ControlFromThread[] = [];
  readonly #dead = new Set<number>();
  readonly #hosts: { next: number };
  readonly #budget = newBudgetMemory();
  #nextReport = 1;

  /** The bridge that connects all pods, 10.9.0.1 and fd09::1. */
  get hub(): TestNetns {
    return this.#hub;
  }

  private constructor(
    t: ExecutionContext,
    parts: {
      settings: ListenerSettings;
      hub: TestNetns;
      pki: TunnelPki;
      piscina: Piscina;
      redirector: Redirector;
      state: TestState;
      hosts: { next: number };
    },
  ) {
    this.#t = t;
    this.#settings = parts.settings;
    this.#hub = parts.hub;
    this.pki = parts.pki;
    this.#piscina = parts.piscina;
    this.#redirector = parts.redirector;
    this.state = parts.state;
    this.#hosts = parts.hosts;
  }

  /** Starts the threads. `beside` is another mesh with its own state, on the same link and with the same authority. */
  static async start(
    t: ExecutionContext,
    options: Partial<ListenerSettings> & {
      readonly threads?: number;
      readonly beside?: TestMesh;
    } = {},
  ): Promise<TestMesh> {
    const { threads = 2, beside, ...changed } = options;
    const node = `node-${randomBytes(4).toString('hex')}`;
    const settings = { ...listenerSettings, ...changed, node };
    const hub =
      beside === undefined ? await createHub(t, ['10.9.0.1/24', 'fd09::1/64']) : beside.#hub;
    const lockDir = await makeScratch('locks');
    t.teardown(() => rm(lockDir, { recursive: true }));
    const piscina = new Piscina({
      filename: ENTRY,
      minThreads: threads,
      maxThreads: threads,
      concurrentTasksPerWorker: 1_000,
      atomics: 'disabled',
      recordTiming: false,
      trackUnmanagedFds: false,
      loadBalancer: (task, workers) => {
        const route = task[queueOptionsSymbol] as { threadId: number } | null;
        return workers.find((worker) => worker.id === route?.threadId) ?? null;
      },
    });
    const mesh = new TestMesh(t, {
      settings,
      hub,
      pki: beside === undefined ? await createTunnelPki() : beside.pki,
      hosts: beside === undefined ? { next: 2 } : beside.#hosts,
      piscina,
      redirector: new Redirector(await chooseTools({ ipv6: true, force: null, lockDir }), lockDir),
      state: new TestState(),
    });
    mesh.#collectLogs(node);
    for (const [number, worker] of piscina.threads.entries()) {
      await mesh.#attach(number, worker.threadId);
    }
    t.teardown(async () => {
      await Promise.all([...mesh.pods.values()].map((pod) => mesh.stop(pod)));
      mesh.state.close();
      await piscina.destroy();
    });
    return mesh;
  }

  /** Makes a namespace with both families and, when enrolled, serves it; `thread` picks the thread. */
  async addPod(
    name: string,
    options: {
      readonly enrolled?: boolean;
      readonly thread?: number;
      readonly workload?: Partial<Workload>;
      readonly known?: boolean;
      /** True for the proxy's own pod, where nothing is redirected. */
      readonly own?: boolean;
    } = {},
  ): Promise<TestPod> {
    const host = this.#hosts.next;
    this.#hosts.next += 1;
    const ip = `10.9.0.${host}`;
    const ip6 = `fd09::${host.toString(16)}`;
    const netns = await createNetns(this.#t, name);
    await connectNetns(
      {
        netns,
        device: 'eth0',
        addresses: [`${ip}/24`, `${ip6}/64`],
        gateways: ['10.9.0.1', 'fd09::1'],
      },
      { netns: this.#hub, device: `v${host}`, addresses: [], bridge: 'br0' },
    );
    const netnsFd = openNetns(netns.path);
    this.#t.teardown(() => closeFd(netnsFd));
    const described = workload({
      uid: `Kubernetes//Pod/demo/${name}`,
      name,
      addresses: [ip, ip6],
      serviceAccount: name,
      workloadName: name,
      canonicalName: name,
      node: 'node-1',
      clusterId: 'Kubernetes',
      tunnelProtocol: options.enrolled === false ? 'NONE' : 'HBONE',
      ...options.workload,
    });
    if (options.known !== false) {
      this.state.set(described.uid, { kind: 'workload', workload: described });
    }
    const { own = false } = options;
    const info = { uid: `uid-${name}`, name, namespace: 'demo', serviceAccount: name, own };
    const { task } =
      options.enrolled === false
        ? { task: Promise.resolve() }
        : await this.#enrol(info, netnsFd, options.thread ?? 0);
    const pod: TestPod = {
      name,
      ip,
      ip6,
      netns,
      netnsFd,
      info,
      workload: described,
      task,
      serve: (port, onSocket) => this.#serve(netnsFd, port, onSocket),
      connect: (to, port) => this.#connect(netnsFd, to, port),
    };
    this.pods.set(name, pod);
    return pod;
  }

  /** Disconnects the pod from the link, as when its node fails. */
  async unplug(pod: TestPod): Promise<void> {
    await this.#hub.ip(`link set v${pod.ip.split('.').at(-1)} down`);
  }

  /** Creates TLS contexts for an identity, for a peer that is not one of the mesh's pods. */
  async credentials(identity: string): Promise<TunnelCredentials> {
    return credentials(await this.pki.issue(identity, this.issue));
  }

  /** Stops a pod and waits for its task. */
  async stop(
    pod: TestPod,
    mode: 'immediate' | 'graceful' = 'immediate',
    deadlineMs = 0,
  ): Promise<void> {
    for (const { control } of this.#threads) {
      control.postMessage({
        type: 'pod.stop',
        uid: pod.info.uid,
        mode,
        deadlineMs,
      } satisfies ControlToThread);
    }
    await pod.task;
  }

  /** Gives every thread new revocation lists. */
  revoke(lists: RevocationLists): void {
    this.tell({ type: 'revocations', lists });
  }

  /** Sends to every thread, as node-proxy would. */
  tell(message: ControlToThread): void {
    for (const { control } of this.#threads) control.postMessage(message);
  }

  /** Ends a thread, and with it its pods, as a crash would. */
  async killThread(number: number): Promise<void> {
    const id = this.#threads[number]?.id;
    this.#dead.add(number);
    await this.#piscina.threads.find((worker) => worker.threadId === id)?.terminate();
  }

  /** Publishes a policy. Resolves when every thread has applied it. */
  async setPolicy(key: string, policy: Authorization): Promise<void> {
    this.state.setPolicy(key, policy);
    // A thread that answers has read the earlier message.
    await this.connections();
  }

  async connections(): Promise<ConnectionRecord[]> {
    const reports = await Promise.all(
      this.#alive.map((thread) => this.#report(thread, 'connections')),
    );
    return reports.flatMap((report) => ('connections' in report ? report.connections : []));
  }

  async metrics(): Promise<MetricSample[]> {
    await Promise.all(this.#alive.map((thread) => this.#report(thread, 'metrics')));
    return this.#alive.flatMap(({ series }) => samplesOf(series));
  }

  /** Sums a metric over the samples that have all the labels. */
  async metric(name: string, labels: Record<string, string> = {}): Promise<number> {
    return (await this.metrics())
      .filter((sample) => {
        const own = new Map(sample.labels);
        return (
          sample.name === name &&
          Object.entries(labels).every(([label, value]) => own.get(label) === value)
        );
      })
      .reduce((sum, sample) => sum + sample.value, 0);
  }

  /** Returns the access log lines so far. */
  access(message: string): Line[] {
    return this.lines.filter((line) => line['scope'] === 'access' && line['message'] === message);
  }

  /** Waits for the access lines of `count` finished connections. */
  accessLines(count: number): Promise<Line[]> {
    return until(
      () => {
        const lines = this.access('connection complete');
        return lines.length >= count ? lines : null;
      },
      { what: `${count} access lines` },
    );
  }

  get #alive(): Thread[] {
    return this.#threads.filter(({ number }) => !this.#dead.has(number));
  }

  #collectLogs(node: string): void {
    const channel = new BroadcastChannel(node);
    channel.addEventListener('message', (event) => {
      this.lines.push(JSON.parse(String(event.data)) as Line);
    });
    this.#t.teardown(() => channel.close());
  }

  async #attach(number: number, id: number): Promise<void> {
    const { port1, port2 } = new MessageChannel();
    const thread: Thread = { number, id, control: port1, series: new SeriesReader() };
    port1.on('message', (message: ControlFromThread) => {
      if (message.type === 'series') {
        thread.series.take(message.message);
        return;
      }
      this.#events.push(message);
      if (message.type === 'certificate.needed') void this.#certify(thread, message.identity);
    });
    this.#t.teardown(() => port1.close());
    this.#threads.push(thread);
    const state = this.state.connect();
    const attachment = {
      thread: number,
      settings: this.#settings,
      control: port2,
      state,
      revocations: null,
      budget: this.#budget,
    };
    await this.#run('attach', thread, attachment, [port2, state]);
    if (!this.#settings.sameNodeFastPath) return;
    const introduced = ({ control }: Thread): Parameters<typeof introduce>[0] => ({
      send: (message, transfer) => control.postMessage(message, [...transfer]),
    });
    const others = this.#threads.filter((other) => other !== thread);
    introduce(introduced(thread), others.map(introduced));
  }

  async #certify(thread: Thread, identity: string): Promise<void> {
    if (this.refused.has(identity)) {
      const error = new MeshError('IDENTITY_REFUSED', `not on this node: ${identity}`).toWire();
      thread.control.postMessage({
        type: 'certificate.unavailable',
        identity,
        error,
      } satisfies ControlToThread);
      return;
    }
    const source = await this.pki.issue(identity, this.issue);
    if (typeof source.key === 'string') throw new Error('a KeyObject crosses to the thread');
    this.chains.set(identity, source.chainPem);
    const certificate = { ...source, key: source.key, serialNumber: '01' };
    thread.control.postMessage({ type: 'certificate', certificate } satisfies ControlToThread);
  }

  async #enrol(
    info: PodInfo,
    netnsFd: number,
    number: number,
  ): Promise<{ readonly task: Promise<void> }> {
    const { inode } = netnsIdentity(netnsFd);
    const rules = redirectRules(
      podRedirect(
        {},
        {
          ipv6: true,
          dnsCapture: this.#settings.dns !== null,
          probeAddress: { v4: '169.254.7.127', v6: 'fd16:9254:7127:1337:ffff:ffff:ffff:ffff' },
        },
      ).options,
    );
    if (info.own !== true) await this.#redirector.apply({ netnsFd, inode }, rules);
    const thread = this.#threads[number];
    if (thread === undefined) throw new Error(`no thread ${number}`);
    const task = this.#run('servePod', thread, { pod: info, netnsFd }).catch((error: unknown) => {
      if (!this.#dead.has(number)) throw error;
    });
    await until(
      () =>
        this.#events.find((event) => {
          if (event.type === 'pod.failed' && event.uid === info.uid) {
            throw MeshError.fromWire(event.error);
          }
          return event.type === 'pod.listening' && event.uid === info.uid;
        }),
      { what: `pod ${info.name} to listen` },
    );
    // The task is wrapped in an object, so that awaiting this function does not await the task.
    return { task };
  }

  async #run(
    name: string,
    thread: Thread,
    task: object,
    transferList: unknown[] = [],
  ): Promise<void> {
    const options = { name, transferList } as unknown as Parameters<Piscina['run']>[1];
    await this.#piscina.run({ ...task, [queueOptionsSymbol]: { threadId: thread.id } }, options);
  }

  async #report(
    thread: Thread,
    what: 'connections' | 'metrics',
  ): Promise<Extract<ControlFromThread, { type: 'report' }>> {
    const id = this.#nextReport;
    this.#nextReport += 1;
    thread.control.postMessage({ type: 'report', id, what } satisfies ControlToThread);
    return until(
      () =>
        this.#events.find(
          (event): event is Extract<ControlFromThread, { type: 'report' }> =>
            event.type === 'report' && event.id === id,
        ),
      { what: 'a report' },
    );
  }

  async #serve(netnsFd: number, port: number, onSocket: (socket: Socket) => void): Promise<Server> {
    const { fd } = listenTcp({
      netnsFd,
      address: '::',
      port,
      mark: 0,
      reusePort: false,
      transparent: 'off',
    });
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => {});
      this.#t.teardown(() => socket.destroy());
      onSocket(socket);
    });
    server.listen({ fd });
    await once(server, 'listening');
    this.#t.teardown(() => server.close());
    return server;
  }

  async #connect(netnsFd: number, ip: string, port: number): Promise<Socket> {
    const family = ipFamily(ip);
    if (family === null) throw new Error(`not an address: ${ip}`);
    const fd = openTcp({ netnsFd, family, mark: 0, noDelay: true });
    const socket = await connectTcp(fd, { ip, port }, { timeoutMs: 60_000 });
    this.#t.teardown(() => socket.destroy());
    return socket;
  }
}

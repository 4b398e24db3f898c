/** Sets up everything that a run measures: the mesh, its pods with their servers, and the peers, over the same links. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { haproxyCaptured, haproxySide, httpServer } from '../peers/haproxy.ts';
import { nodeSide } from '../peers/node-pair.ts';
import { compilePump, redirectedTo, splicePump } from '../peers/splice.ts';
import { ZtunnelMesh, ztunnelProgram } from '../peers/ztunnel.ts';
import type { Forward } from '../programs/forward.ts';
import { makeCertificate } from './certificate.ts';
import type { PairCertificate } from './certificate.ts';
import type { Target } from './loads.ts';
import { BenchMesh } from './mesh.ts';
import type { BenchPod } from './mesh.ts';
import { eventually, inNamespace, serve } from './process.ts';
import type { Background } from './process.ts';
import { copyRedirection, letThrough, sparePorts } from './pods.ts';

/** The systems that carry the bytes. */
export type PeerName =
  | 'direct'
  | 'haproxy'
  | 'haproxy-in-pod'
  | 'http2'
  | 'in-pod'
  | 'tls'
  | 'splice'
  | 'captured'
  | 'ztunnel'
  | 'weft';
/** The paths of the bytes: to an enrolled pod, or between an enrolled pod and one outside the mesh. */
export type Path = 'nodes' | 'same-node' | 'leaving' | 'entering';

/** All peers, in the order of the table. */
export const PEERS: readonly PeerName[] = [
  'direct',
  'haproxy',
  'haproxy-in-pod',
  'http2',
  'in-pod',
  'tls',
  'splice',
  'captured',
  // Where WEFT_ZTUNNEL names one.
  ...(ztunnelProgram === undefined ? [] : (['ztunnel'] as const)),
  'weft',
];

/** The peers of each path: pairs with TLS between nodes, the pump for unchanged bytes. */
export const PEERS_OF: Readonly<Record<Path, readonly PeerName[]>> = {
  nodes: ['direct', 'haproxy', 'haproxy-in-pod', 'http2', 'tls', 'ztunnel', 'weft'],
  'same-node': ['direct', 'splice', 'captured', 'ztunnel', 'weft'],
  leaving: ['direct', 'splice', 'captured', 'weft'],
  entering: ['direct', 'splice', 'captured', 'weft'],
};

const BYTES_PORT = 5201;
const HTTP_PORT = 8081;
const APP_PORTS = [BYTES_PORT, HTTP_PORT] as const;
/** The first of two ports: the one that clients dial on their node, and the one between the nodes. */
const PAIR_PORTS = {
  haproxy: { client: 7_201, server: 7_211 },
  http2: { client: 7_301, server: 7_311 },
  tls: { client: 7_401, server: 7_411 },
} as const;
/** The pump's ports for the near and the far server. */
const PUMP_PORTS = { near: 7_501, far: 7_511 } as const;
/** Ports of redirection: for traffic out of a pod, for traffic into it, and the inbound port that is not redirected. */
const OUTBOUND_PORT = 15_001;
const INBOUND_PORT = 15_006;
const TUNNEL_PORT = 15_008;
/** Addresses of the nodes on their link. */
const NODE_1 = '10.200.0.11';
const NODE_2 = '10.200.0.12';

type PairName = keyof typeof PAIR_PORTS;
type Pods = Readonly<Record<'load' | 'near' | 'far', { mesh: BenchPod; bare: BenchPod }>> & {
  /** Pods outside the mesh with the redirection of enrolled pods, for the pump and both sides of a pair. */
  readonly captured: BenchPod;
  readonly inside: { readonly load: BenchPod; readonly far: BenchPod };
  /** The same for the HAProxy pair. */
  readonly haproxy: { readonly load: BenchPod; readonly far: BenchPod };
};

/** The running rig. */
export class Rig {
  readonly mesh: BenchMesh;
  readonly scratch: string;
  /** Process ids of each pair: client side, then server side. */
  readonly pairs = new Map<PeerName, readonly [number, number]>();
  readonly #running: Background[] = [];
  readonly #ztunnel = new ZtunnelMesh();
  #pods: Pods | null = null;
  #ztunnelPods: Readonly<Record<'load' | 'near' | 'far', BenchPod>> | null = null;

  private constructor(mesh: BenchMesh, scratch: string) {
    this.mesh = mesh;
    this.scratch = scratch;
  }

  /** Brings up the mesh and the wanted peers. A failure takes everything down again. */
  static async up(peers: ReadonlySet<PeerName>): Promise<Rig> {
    const rig = new Rig(new BenchMesh(), await mkdtemp(join(tmpdir(), 'weft-bench-')));
    try {
      await rig.mesh.up();
      await rig.#start(peers);
      return rig;
    } catch (error) {
      await rig.down();
      throw error;
    }
  }

  /** Ends the peers and the mesh. */
  async down(): Promise<void> {
    for (const program of this.#running) await program.stop();
    await this.mesh.down();
    if (this.#ztunnelPods !== null) await this.#ztunnel.down();
    await rm(this.scratch, { recursive: true });
  }

  /** Returns the source and destination of the load for a peer on a path. */
  target(peer: PeerName, path: Path): Target {
    const { load, near, far, captured, inside, haproxy } = this.#known();
    const other = path === 'same-node' ? near : far;
    switch (peer) {
      case 'direct':
        return target(load.bare, other.bare.ip, BYTES_PORT);
      case 'splice':
        return target(load.bare, NODE_1, PUMP_PORTS[path === 'same-node' ? 'near' : 'far']);
      case 'captured':
        if (path === 'entering') return target(load.bare, inside.far.ip, BYTES_PORT);
        return target(captured, path === 'leaving' ? other.bare.ip : other.mesh.ip, BYTES_PORT);
      case 'in-pod':
        return target(inside.load, inside.far.ip, BYTES_PORT);
      case 'haproxy-in-pod':
        return target(haproxy.load, haproxy.far.ip, BYTES_PORT);
      case 'ztunnel': {
        if (this.#ztunnelPods === null) throw new Error('there is no ztunnel');
        const own = this.#ztunnelPods;
        return target(own.load, path === 'same-node' ? own.near.ip : own.far.ip, BYTES_PORT);
      }
      case 'weft':
        return path === 'entering'
          ? target(load.bare, other.mesh.ip, BYTES_PORT)
          : target(load.mesh, path === 'leaving' ? other.bare.ip : other.mesh.ip, BYTES_PORT);
      case 'haproxy':
      case 'http2':
      case 'tls':
        return target(load.bare, NODE_1, PAIR_PORTS[peer].client);
    }
  }

  /** Process ids of the proxies between two pods; empty for a peer whose processes are not told apart. */
  async pids(peer: PeerName): Promise<readonly number[]> {
    if (peer === 'weft') return this.mesh.pids('node-proxy');
    if (peer === 'ztunnel') return this.#ztunnel.pids;
    return this.pairs.get(peer) ?? [];
  }

  #known(): Pods {
    if (this.#pods === null) throw new Error('the rig is not up');
    return this.#pods;
  }

  async #start(peers: ReadonlySet<PeerName>): Promise<void> {
    const both = async (name: string): Promise<{ mesh: BenchPod; bare: BenchPod }> => ({
      mesh: await this.mesh.pod('bench', name),
      bare: await this.mesh.pod('bare', name),
    });
    this.#pods = {
      load: await both('load'),
      near: await both('near'),
      far: await both('far'),
      captured: await this.mesh.pod('bare', 'captured'),
      inside: {
        load: await this.mesh.pod('bare', 'inside-load'),
        far: await this.mesh.pod('bare', 'inside-far'),
      },
      haproxy: {
        load: await this.mesh.pod('bare', 'haproxy-load'),
        far: await this.mesh.pod('bare', 'haproxy-far'),
      },
    };
    const { load, near, far, captured, inside, haproxy } = this.#pods;
    const loads = [load.mesh, load.bare, captured, inside.load, haproxy.load];
    const nodes = ['node-1', 'node-2'].map((name) => this.mesh.node(name));
    await sparePorts([...loads.map(({ netns }) => netns), ...nodes]);
    for (const [name, pod] of Object.entries({ near: near.bare, far: far.bare })) {
      await this.#serve(pod, `bare-${name}`);
    }
    for (const [name, pod] of Object.entries({ near: near.mesh, far: far.mesh })) {
      await this.#serve(pod, `mesh-${name}`);
    }
    await this.#serve(inside.far, 'inside-far');
    await this.#serve(haproxy.far, 'haproxy-far');
    for (const pod of [captured, inside.load, inside.far, haproxy.load, haproxy.far]) {
      await copyRedirection(load.mesh, pod, this.scratch);
    }
    const certificate = await makeCertificate(this.scratch);
    await this.#startPairs(peers, certificate);
    if (peers.has('splice') || peers.has('captured')) {
      const program = await compilePump(this.scratch);
      if (peers.has('splice')) this.#startPump(program);
      if (peers.has('captured')) this.#startCaptured(program);
    }
    if (peers.has('in-pod')) await this.#startInPod(certificate);
    if (peers.has('haproxy-in-pod')) await this.#startHaproxyInPod(certificate);
    if (peers.has('ztunnel') && ztunnelProgram !== undefined) {
      await this.#startZtunnel(ztunnelProgram);
    }
    for (const peer of peers) {
      for (const path of pathsOf(peer)) await answers(peer, path, this.target(peer, path));
    }
  }

  async #serve(pod: BenchPod, name: string): Promise<void> {
    const log = join(this.scratch, `iperf3-${name}.log`);
    this.#running.push(await httpServer(pod.netns, this.scratch, name, HTTP_PORT));
    this.#running.push(
      serve(pod.netns, 'iperf3', '-s', '-p', String(BYTES_PORT), '--logfile', log),
    );
  }

  async #startPairs(peers: ReadonlySet<PeerName>, certificate: PairCertificate): Promise<void> {
    const { far } = this.#known();
    for (const [name, ports] of Object.entries(PAIR_PORTS) as [PairName, PairPorts][]) {
      if (!peers.has(name)) continue;
      const toNode = forwards(ports.client, NODE_2, [ports.server, ports.server + 1]);
      const toApp = forwards(ports.server, far.bare.ip, APP_PORTS);
      const side = (node: string, which: 'client' | 'server', list: readonly Forward[]) =>
        name === 'haproxy'
          ? haproxySide(this.mesh.node(node), this.scratch, which, certificate, list)
          : nodeSide(name, this.mesh.node(node), which, certificate, list);
      const client = await side('node-1', 'client', toNode);
      const server = await side('node-2', 'server', toApp);
      this.#running.push(client, server);
      this.pairs.set(name, [client.pid, server.pid]);
    }
  }

  async #startZtunnel(program: string): Promise<void> {
    const { mesh } = this.#ztunnel;
    const pod = (name: string): Promise<BenchPod> => mesh.pod('bench', name);
    try {
      await this.#ztunnel.up(program);
      this.#ztunnelPods = {
        load: await pod('load'),
        near: await pod('near'),
        far: await pod('far'),
      };
    } finally {
      if (this.#ztunnelPods === null) await this.#ztunnel.down();
    }
    const { load, near, far } = this.#ztunnelPods;
    await sparePorts([load.netns, mesh.node('node-1'), mesh.node('node-2')]);
    await this.#serve(near, 'ztunnel-near');
    await this.#serve(far, 'ztunnel-far');
  }

  #startPump(program: string): void {
    const { near, far } = this.#known();
    const list = [
      ...forwards(PUMP_PORTS.near, near.bare.ip, APP_PORTS),
      ...forwards(PUMP_PORTS.far, far.bare.ip, APP_PORTS),
    ];
    this.#running.push(splicePump(this.mesh.node('node-1'), program, list));
  }

  /**
   * Starts the pump in place of listeners: in the pods' own namespaces, behind the rules of an enrolled pod. Like a listener,
   * it reaches the pod on the same node through a socket inside that pod.
   */
  #startCaptured(program: string): void {
    const { captured, near, inside } = this.#known();
    this.#running.push(
      splicePump(captured.netns, program, [redirectedTo(OUTBOUND_PORT)], [near.mesh]),
      splicePump(inside.far.netns, program, [redirectedTo(INBOUND_PORT)], [inside.far]),
    );
  }

  /** Starts the `http2` pair in place of the listeners of two pods. It cannot mark its tunnels, so a rule exempts them. */
  async #startInPod(certificate: PairCertificate): Promise<void> {
    const { load, far } = this.#known().inside;
    await letThrough(load, { ip: far.ip, port: TUNNEL_PORT });
    const out = forwards(OUTBOUND_PORT, far.ip, [TUNNEL_PORT]);
    const into = forwards(TUNNEL_PORT, far.ip, [HTTP_PORT]);
    this.#running.push(
      nodeSide('http2', load.netns, 'client', certificate, out),
      nodeSide('http2', far.netns, 'server', certificate, into),
    );
  }

  /** Starts the HAProxy pair in place of the listeners of two pods. */
  async #startHaproxyInPod(certificate: PairCertificate): Promise<void> {
    const { load, far } = this.#known().haproxy;
    await letThrough(load, { ip: far.ip, port: TUNNEL_PORT });
    const ports = { outbound: OUTBOUND_PORT, tunnel: TUNNEL_PORT, application: APP_PORTS };
    const side = (pod: BenchPod, which: 'client' | 'server'): Promise<Background> =>
      haproxyCaptured(pod.netns, this.scratch, which, certificate, { ip: far.ip, ports });
    const client = await side(load, 'client');
    const server = await side(far, 'server');
    this.#running.push(client, server);
    this.pairs.set('haproxy-in-pod', [client.pid, server.pid]);
  }
}

type PairPorts = (typeof PAIR_PORTS)[PairName];

/** Lists the paths on which a peer must work before the measurement. */
function pathsOf(peer: PeerName): readonly Path[] {
  const paths: readonly Path[] = ['nodes', 'same-node', 'leaving', 'entering'];
  return paths.filter((path) =>
    peer === 'in-pod' ? path === 'nodes' : PEERS_OF[path].includes(peer),
  );
}

/** Maps consecutive listening ports to the ports of one host. */
function forwards(listen: number, host: string, to: readonly number[]): Forward[] {
  return to.map((port, index) => ({ listen: listen + index, host, port }));
}

/** Makes a target. The application's ports are far apart, the relays' are consecutive. */
function target(from: BenchPod, host: string, firstPort: number): Target {
  const httpPort = firstPort === BYTES_PORT ? HTTP_PORT : firstPort + 1;
  return { from: from.netns, host, bytesPort: firstPort, httpPort };
}

async function answers(peer: PeerName, path: Path, to: Target): Promise<void> {
  const { from, host, httpPort } = to;
  await eventually(`${peer} answers (${path})`, 20_000, () =>
    inNamespace(from, 'curl', '-sf', '-m2', `http://${host}:${httpPort}/`),
  );
}

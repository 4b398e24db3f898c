/**
 * Many running pods join and leave the mesh under traffic, while the node's link is captured. `WEFT_TEST_PODS` sets their number; the
 * whole count of a node takes a minute.
 */
import { createSocket } from 'node:dgram';
import type { Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { processEnvironment } from '../../lib/config/env.ts';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { listenTcp, openTcp } from '../../lib/linux/sockets.ts';
import { listenUdp } from '../../lib/linux/udp.ts';
import { connectTcp } from '../../lib/net/connect-tcp.ts';
import { captureWhile } from '../support/capture.ts';
import { connectNetns, createHub, createNetns } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { agentSite, startAgent } from '../support/node-agent-kit.ts';
import { podRecord, writeRecord } from '../support/pod-records.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';

const PODS = Number(processEnvironment()['WEFT_TEST_PODS'] ?? 10);
const SERVER = { ip: '10.89.0.1', port: 7_000 };
/** Datagrams to this port and those after it say in the capture that a pod is enrolled, or is about to leave. */
const FIRST_MARK = 40_000;
const CONNECT_MS = 30_000;
/** Each pod opens some twenty connections a second. */
const PACE_MS = 50;

/** A pod that opens one connection after another. */
class BusyPod {
  readonly uid: string;
  readonly ip: string;
  readonly netns: TestNetns;
  /** Connections by who answered: the server, the proxy, or nobody. */
  readonly counts = { plain: 0, carried: 0, refused: 0 };
  readonly #netnsFd: number;
  #work: Promise<void> = Promise.resolve();
  #ended = false;

  constructor(t: ExecutionContext, index: number, netns: TestNetns) {
    this.uid = `u-${index}`;
    this.ip = podIp(index);
    this.netns = netns;
    this.#netnsFd = openNetns(netns.path);
    t.teardown(async () => {
      await this.stop();
      closeFd(this.#netnsFd);
    });
  }

  start(): void {
    this.#work = this.#talk();
  }

  stop(): Promise<void> {
    this.#ended = true;
    return this.#work;
  }

  /** Waits until one more connection than now was answered so. */
  async next(answer: 'plain' | 'carried'): Promise<void> {
    const before = this.counts[answer];
    await until(() => this.counts[answer] > before, { what: `${this.uid}: ${answer}` });
  }

  async #talk(): Promise<void> {
    while (!this.#ended) {
      const answer = await this.#ask();
      this.counts[answer] += 1;
      await systemClock.sleep(PACE_MS);
    }
  }

  async #ask(): Promise<'plain' | 'carried' | 'refused'> {
    const fd = openTcp({ netnsFd: this.#netnsFd, family: 4, mark: 0, noDelay: true });
    try {
      const socket = await connectTcp(fd, SERVER, { timeoutMs: CONNECT_MS });
      try {
        const answer = await textOf(socket);
        return answer.startsWith('15001 ') ? 'carried' : answer === 'plain' ? 'plain' : 'refused';
      } finally {
        socket.destroy();
      }
    } catch {
      // Redirected, and no listener yet.
      return 'refused';
    }
  }
}

function podIp(index: number): string {
  return `10.88.${Math.floor(index / 200)}.${10 + (index % 200)}`;
}

/** Makes a pod on the node's bridge. */
async function busyPod(t: ExecutionContext, hub: TestNetns, index: number): Promise<BusyPod> {
  const netns = await createNetns(t, `p${index}`);
  await connectNetns(
    {
      netns,
      device: 'eth0',
      addresses: [`${podIp(index)}/16`],
      gateways: ['10.88.0.1'],
    },
    { netns: hub, device: `v${index}`, addresses: [], bridge: 'br0' },
  );
  return new BusyPod(t, index, netns);
}

/** Answers each connection from outside of the node. */
async function serve(t: ExecutionContext, outside: TestNetns): Promise<void> {
  const netnsFd = openNetns(outside.path);
  t.teardown(() => closeFd(netnsFd));
  const { fd } = listenTcp({
    netnsFd,
    address: '::',
    port: SERVER.port,
    mark: 0,
    reusePort: false,
    transparent: 'off',
  });
  const server = createServer((peer) => {
    peer.on('error', () => peer.destroy());
    peer.end('plain');
  });
  server.listen({ fd });
  await once(server, 'listening');
  t.teardown(() => void server.close());
}

/** A socket of the node, for marks in the capture. */
function markSocket(t: ExecutionContext, hub: TestNetns): UdpSocket {
  const netnsFd = openNetns(hub.path);
  const { fd } = listenUdp({
    netnsFd,
    address: '10.89.0.2',
    port: 0,
    mark: 0,
    reusePort: false,
    receiveBufferBytes: 0,
  });
  closeFd(netnsFd);
  const socket = createSocket('udp4');
  socket.bind({ fd });
  t.teardown(() => void socket.close());
  return socket;
}

async function mark(socket: UdpSocket, index: number, what: 'enrolled' | 'leaving'): Promise<void> {
  const port = FIRST_MARK + 2 * index + (what === 'enrolled' ? 0 : 1);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  socket.send('.', port, SERVER.ip, (error) => (error === null ? resolve() : reject(error)));
  await promise;
}

/** The connections that left the node, with the pods that were enrolled at that moment. */
interface Left {
  readonly ip: string;
  readonly enrolled: ReadonlySet<number>;
}

/** Reads a capture: each connection once, by its first packet. */
function connectionsOf(packets: readonly string[]): readonly Left[] {
  let enrolled: ReadonlySet<number> = new Set();
  const seen = new Set<string>();
  const left: Left[] = [];
  for (const line of packets) {
    const [, ip = '', port = '', to = ''] =
      / IP (\d+\.\d+\.\d+\.\d+)\.(\d+) > \d+\.\d+\.\d+\.\d+\.(\d+): /.exec(line) ?? [];
    const sign = Number(to) - FIRST_MARK;
    if (line.includes(' UDP')) {
      const next = new Set(enrolled);
      if (sign % 2 === 0) next.add(sign / 2);
      else next.delete((sign - 1) / 2);
      enrolled = next;
    } else if (!seen.has(`${ip}:${port}`)) {
      seen.add(`${ip}:${port}`);
      left.push({ ip, enrolled });
    }
  }
  return left;
}

test(`no connection of an enrolled pod leaves the node in plaintext while ${PODS} pods join and leave under traffic`, async (t) => {
  const hub = await createHub(t, ['10.88.0.1/16']);
  const outside = await createNetns(t, 'out');
  await connectNetns(
    { netns: outside, device: 'eth0', addresses: ['10.89.0.1/24'], gateways: ['10.89.0.2'] },
    { netns: hub, device: 'up0', addresses: ['10.89.0.2/24'] },
  );
  await hub.exec('sysctl', '-qw', 'net.ipv4.ip_forward=1');
  await serve(t, outside);
  const marks = markSocket(t, hub);
  const pods: BusyPod[] = [];
  for (let index = 0; index <= PODS; index += 1) pods.push(await busyPod(t, hub, index));
  // The last one never joins.
  const [control] = pods.splice(PODS) as [BusyPod];

  const site = await agentSite(t);
  const agent = await startAgent(t, site);
  startServingProxy(t, site.socket);
  const record = (pod: BusyPod, member: boolean): Promise<void> => {
    const whole = podRecord({ uid: pod.uid, netns: pod.netns.path, addresses: [pod.ip] });
    return writeRecord(site.podsDir, pod.uid, member ? whole : { ...whole, labels: {} });
  };
  const join = async (pod: BusyPod, index: number): Promise<void> => {
    await record(pod, true);
    await until(() => agent.state(pod.uid) === 'enabled', { what: `${pod.uid} is enrolled` });
    await mark(marks, index, 'enrolled');
    await pod.next('carried');
  };
  const leave = async (pod: BusyPod, index: number): Promise<void> => {
    await mark(marks, index, 'leaving');
    await record(pod, false);
    await pod.next('plain');
  };
  const each = (which: readonly BusyPod[], act: typeof join): Promise<unknown> =>
    Promise.all(which.map((pod) => act(pod, pods.indexOf(pod))));

  const { packets } = await captureWhile(
    { netns: hub.path, device: 'up0', filter: 'udp or tcp[tcpflags]&(tcp-syn|tcp-ack)==tcp-syn' },
    async () => {
      for (const pod of [...pods, control]) pod.start();
      await Promise.all(pods.map((pod) => pod.next('plain')));
      await each(pods, join);
      await each(pods, leave);
      const [some, others] = [
        pods.filter((_, index) => index % 2 === 0),
        pods.filter((_, index) => index % 2 === 1),
      ];
      await each(some, join);
      // Half of them leave while the others join.
      await Promise.all([each(some, leave), each(others, join)]);
      await Promise.all([...pods, control].map((pod) => pod.stop()));
    },
  );
  const left = connectionsOf(packets);
  const leaked = left.filter(({ ip, enrolled }) =>
    pods.some((pod, index) => pod.ip === ip && enrolled.has(index)),
  );
  t.deepEqual(
    leaked.map(({ ip }) => ip),
    [],
  );
  // The capture sees plaintext: that of each pod while it is outside, and of the other one all the time.
  for (const pod of pods)
    t.true(
      left.some(({ ip }) => ip === pod.ip),
      pod.uid,
    );
  const during = left.filter(({ ip, enrolled }) => ip === control.ip && enrolled.size > 0);
  t.true(during.length > 0);
  t.is(control.counts.carried, 0);
  const carried = pods.reduce((sum, pod) => sum + pod.counts.carried, 0);
  t.log(
    `${left.length} plain connections captured, ${during.length} of the control, ${carried} carried`,
  );
});

/** Where each kind of traffic of an enrolled pod goes, with every way to write rules. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import type { ExecutionContext } from 'ava';
import { closeFd, openNetns } from '../../lib/linux/netns.ts';
import { listenTcp, openTcp } from '../../lib/linux/sockets.ts';
import { listenUdp } from '../../lib/linux/udp.ts';
import { connectTcp } from '../../lib/net/connect-tcp.ts';
import { connectNetns, createNetns, createPodPair } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { agentSite, startAgent } from '../support/node-agent-kit.ts';
import { podRecord, writeRecord } from '../support/pod-records.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';

const POD = { v4: '10.9.0.2', v6: 'fd09::2' };
const PEER = { v4: '10.9.0.1', v6: 'fd09::1' };
const PROBE = { v4: '169.254.7.127', v6: 'fd16:9254:7127:1337:ffff:ffff:ffff:ffff' };
const METADATA = '169.254.169.254';
const APPLICATION = 8_081;
const PROXY_MARK = 0x539;
const ANSWER_MS = 20_000;

const WAYS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  nft: { FORCE_IPTABLES_BINARY: 'nft' },
  legacy: { FORCE_IPTABLES_BINARY: 'legacy' },
  native: { FORCE_IPTABLES_BINARY: '', NATIVE_NFTABLES: 'true' },
};

interface Descriptors {
  /** The descriptor of a namespace, for as long as the test lasts. */
  of(netns: TestNetns): number;
}

function descriptors(t: ExecutionContext): Descriptors {
  const open = new Map<TestNetns, number>();
  t.teardown(() => {
    for (const fd of open.values()) closeFd(fd);
  });
  return {
    of: (netns) => {
      const fd = open.get(netns) ?? openNetns(netns.path);
      open.set(netns, fd);
      return fd;
    },
  };
}

/** Answers each connection with a word. */
async function serve(
  t: ExecutionContext,
  netnsFd: number,
  port: number,
  word: string,
): Promise<void> {
  const { fd } = listenTcp({
    netnsFd,
    address: '::',
    port,
    mark: 0,
    reusePort: false,
    transparent: 'off',
  });
  const server = createServer((peer) => {
    peer.on('error', () => peer.destroy());
    peer.end(word);
  });
  server.listen({ fd });
  await once(server, 'listening');
  t.teardown(() => void server.close());
}

/** Connects from a namespace and returns what it hears until the end. */
async function hear(
  netnsFd: number,
  ip: string,
  port: number,
  options: { readonly mark?: number; readonly from?: string } = {},
): Promise<string> {
  const family = ip.includes(':') ? 6 : 4;
  const { mark = 0, from } = options;
  const fd = openTcp({
    netnsFd,
    family,
    mark,
    noDelay: true,
    ...(from === undefined ? {} : { source: { ip: from } }),
  });
  const socket = await connectTcp(fd, { ip, port }, { timeoutMs: ANSWER_MS });
  socket.setTimeout(ANSWER_MS, () => socket.destroy(new Error(`no answer from ${ip}:${port}`)));
  try {
    return (await textOf(socket)).trim();
  } finally {
    socket.destroy();
  }
}

/** Returns the first datagram that a port in the namespace gets while `send` is repeated. */
async function datagram(
  t: ExecutionContext,
  netnsFd: number,
  port: number,
  send: () => Promise<unknown>,
): Promise<string> {
  const { fd } = listenUdp({
    netnsFd,
    address: '0.0.0.0',
    port,
    mark: PROXY_MARK,
    reusePort: false,
    receiveBufferBytes: 0,
  });
  const socket = createSocket('udp4');
  t.teardown(() => void socket.close());
  let heard: string | null = null;
  socket.on('message', (bytes) => (heard = bytes.toString()));
  socket.bind({ fd });
  await until(
    async () => {
      await send();
      return heard !== null;
    },
    { what: `a datagram at ${port}` },
  );
  return heard ?? '';
}

for (const [way, environment] of Object.entries(WAYS)) {
  // spec: inpod.md §5.1
  test(`each kind of traffic goes where it should (${way})`, async (t) => {
    const site = await agentSite(t, { ...environment, AMBIENT_DNS_CAPTURE: 'true' });
    const agent = await startAgent(t, site);
    startServingProxy(t, site.socket);
    const fds = descriptors(t);
    const { pod: podNetns, peer: peerNetns } = await createPodPair(t);
    const clientNetns = await createNetns(t, 'client');
    await connectNetns(
      {
        netns: clientNetns,
        device: 'eth0',
        addresses: ['10.9.1.2/24'],
        gateways: ['10.9.1.1'],
      },
      { netns: peerNetns, device: 'veth1', addresses: ['10.9.1.1/24'] },
    );
    const guestNetns = await createNetns(t, 'guest');
    await connectNetns(
      { netns: guestNetns, device: 'eth0', addresses: ['10.9.2.2/24'], gateways: ['10.9.2.1'] },
      { netns: podNetns, device: 'vnet0', addresses: ['10.9.2.1/24'] },
    );
    // The peer is the node: it has the probe's and the metadata server's addresses, and forwards a hostPort.
    for (const address of [`${PROBE.v4}/32`, `${METADATA}/32`]) {
      await peerNetns.ip(`addr add ${address} dev lo`);
    }
    await peerNetns.ip(`addr add ${PROBE.v6}/128 dev lo`);
    await peerNetns.exec('sysctl', '-qw', 'net.ipv4.ip_forward=1');
    for (const port of ['30080', '8088']) {
      await peerNetns.exec(
        ...(['iptables-nft', '-t', 'nat', '-A', 'PREROUTING', '-p', 'tcp', '--dport'] as const),
        ...([port, '-j', 'DNAT', '--to', `${POD.v4}:${APPLICATION}`] as const),
      );
    }
    const [pod, peer, client, guest] = [podNetns, peerNetns, clientNetns, guestNetns].map((netns) =>
      fds.of(netns),
    ) as [number, number, number, number];
    await serve(t, pod, APPLICATION, 'the application');
    await serve(t, pod, 15_053, 'the resolver');
    await serve(t, peer, 7_778, 'the peer');

    const record = podRecord({
      uid: 'u-1',
      netns: podNetns.path,
      addresses: [POD.v4, POD.v6],
      annotations: { 'istio.io/reroute-virtual-interfaces': 'vnet0' },
    });
    await writeRecord(site.podsDir, 'u-1', record);
    await until(() => agent.state('u-1') === 'enabled', { what: 'enabled' });
    const app = 'the application';
    for (const [what, heard, expected] of [
      ['outbound', () => hear(pod, PEER.v4, 7_777), `15001 ${PEER.v4} 7777`],
      ['outbound, IPv6', () => hear(pod, PEER.v6, 7_777), `15001 ${PEER.v6} 7777`],
      ['link-local', () => hear(pod, METADATA, 80), `15001 ${METADATA} 80`],
      ['inbound', () => hear(peer, POD.v4, APPLICATION), `15006 ${POD.v4} ${APPLICATION}`],
      ['inbound, IPv6', () => hear(peer, POD.v6, APPLICATION), `15006 ${POD.v6} ${APPLICATION}`],
      ['a port without a listener', () => hear(peer, POD.v4, 9), `15006 ${POD.v4} 9`],
      ['NodePort', () => hear(client, '10.9.1.1', 30_080), `15006 ${POD.v4} ${APPLICATION}`],
      ['hostPort', () => hear(client, '10.9.1.1', 8_088), `15006 ${POD.v4} ${APPLICATION}`],
      ['a guest of the pod', () => hear(guest, PEER.v4, 7_777), `15001 ${PEER.v4} 7777`],
      ['loopback', () => hear(pod, '127.0.0.1', APPLICATION), app],
      ['loopback, IPv6', () => hear(pod, '::1', APPLICATION), app],
      ['the pod itself', () => hear(pod, POD.v4, APPLICATION), app],
      ['the pod itself, IPv6', () => hear(pod, POD.v6, APPLICATION), app],
      ['a probe', () => hear(peer, POD.v4, APPLICATION, { from: PROBE.v4 }), app],
      ['a probe, IPv6', () => hear(peer, POD.v6, APPLICATION, { from: PROBE.v6 }), app],
      ['the proxy', () => hear(pod, PEER.v4, 7_778, { mark: PROXY_MARK }), 'the peer'],
      ['the proxy, IPv6', () => hear(pod, PEER.v6, 7_778, { mark: PROXY_MARK }), 'the peer'],
      ['DNS over TCP', () => hear(pod, PEER.v4, 53), 'the resolver'],
    ] as const) {
      t.is(await heard(), expected, what);
    }
    t.regex(await hear(peer, POD.v4, 15_008), /^15008 /, 'HBONE');
    const query = await datagram(t, pod, 15_053, () =>
      podNetns.exec('bash', '-c', `echo query > /dev/udp/${PEER.v4}/53`),
    );
    t.is(query, 'query\n', 'DNS over UDP');

    await writeRecord(site.podsDir, 'u-1', {
      ...record,
      annotations: { 'ambient.istio.io/bypass-inbound-capture': 'true' },
    });
    await until(async () => (await hear(peer, POD.v4, APPLICATION)) === app, {
      what: 'ingress mode: inbound goes to the application',
    });
    t.is(await hear(pod, PEER.v4, 7_777), `15001 ${PEER.v4} 7777`, 'ingress mode: outbound');
    t.is(agent.enrolments()[0]?.driftRepairs, 0);
  });
}

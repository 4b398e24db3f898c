import { Socket } from 'node:net';
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { writeSysctl } from '../../lib/linux/netns.ts';
import { openTcp } from '../../lib/linux/sockets.ts';
import { podRedirect } from '../../lib/redirect/pod-options.ts';
import { redirectRules } from '../../lib/redirect/rules.ts';
import { TestMesh } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { closed, echo, heard } from '../support/tcp-talk.ts';
import { until } from '../support/until.ts';

const FAMILIES = ['ip', 'ip6'] as const;

async function webAndOutsider(
  t: ExecutionContext,
): Promise<{ readonly mesh: TestMesh; readonly web: TestPod; readonly outsider: TestPod }> {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const web = await mesh.addPod('web');
  return { mesh, web, outsider: await mesh.addPod('outsider', { enrolled: false }) };
}

/** Connects from inside the pod and from this port. */
async function connectFrom(
  t: ExecutionContext,
  from: TestPod,
  to: { readonly ip: string; readonly port: number; readonly localPort: number },
): Promise<Socket> {
  const family = to.ip.includes(':') ? 6 : 4;
  const fd = openTcp({ netnsFd: from.netnsFd, family, mark: 0, noDelay: true });
  const localAddress = family === 6 ? from.ip6 : from.ip;
  const { ip: host, port, localPort } = to;
  const socket = new Socket({ fd }).connect({ host, port, localAddress, localPort });
  socket.on('error', () => undefined);
  t.teardown(() => socket.destroy());
  await until(() => !socket.connecting, { what: `${host} to answer port ${localPort}` });
  return socket;
}

/** Restricts the proxy's connections to the application to this source port. */
function upstreamPort(pod: TestPod, port: number): void {
  writeSysctl(pod.netnsFd, 'net.ipv4.ip_local_port_range', `${port} ${port}`);
}

async function end(socket: Socket): Promise<void> {
  const over = closed(socket);
  socket.end();
  await over;
}

// spec: inpod.md §5.1
test('a client may use the ports that the proxy uses in its name, dead ones and live ones', async (t) => {
  const { mesh, web, outsider } = await webAndOutsider(t);
  const seen: (number | undefined)[] = [];
  await web.serve(8080, (socket) => {
    seen.push(socket.remotePort);
    if (socket.remotePort === 20_001) socket.resetAndDestroy();
    else echo(socket);
  });
  for (const family of FAMILIES) {
    const to = { ip: web[family], port: 8080 };
    upstreamPort(web, 20_001);
    await closed(await connectFrom(t, outsider, { ...to, localPort: 30_001 }));
    // The conntrack entry of the reset connection must not match this one.
    upstreamPort(web, 20_002);
    const second = await connectFrom(t, outsider, { ...to, localPort: 20_001 });
    second.write('redirected');
    t.is(await heard(second), 'redirected');
    // The proxy picks the same port while a connection of the client is alive.
    upstreamPort(web, 30_002);
    const third = await connectFrom(t, outsider, { ...to, localPort: 30_002 });
    third.write('both live');
    t.is(await heard(third), 'both live');
    t.deepEqual(seen.splice(0), [20_001, 20_002, 30_002]);
    await Promise.all([end(second), end(third)]);
  }
  const lines = await mesh.accessLines(6);
  const ports = lines.map((line) => Number(/\d+$/.exec(String(line['src.addr']))?.[0]));
  t.deepEqual(
    ports.toSorted((a, b) => a - b),
    [20_001, 20_001, 30_001, 30_001, 30_002, 30_002],
  );
});

/** Sends far more than any window there and back. */
async function bulk(t: ExecutionContext, socket: Socket): Promise<void> {
  const bytes = 1 << 20;
  let got = 0;
  const count = (chunk: Buffer): void => void (got += chunk.length);
  socket.on('data', count);
  socket.resume();
  socket.write(Buffer.alloc(bytes));
  await until(() => got >= bytes, { what: 'all bytes back' });
  socket.off('data', count);
  t.is(got, bytes);
}

// spec: inpod.md §5.1
test('connections go on while the rule that sets them apart is lost and while it comes', async (t) => {
  const { mesh, web, outsider } = await webAndOutsider(t);
  await web.serve(8080, echo);
  // As the node agent sets it in every pod.
  writeSysctl(web.netnsFd, 'net.netfilter.nf_conntrack_tcp_loose', '0');
  writeSysctl(web.netnsFd, 'net.netfilter.nf_conntrack_tcp_be_liberal', '1');
  const probeAddress = { v4: '169.254.7.127', v6: 'fd16::1' };
  const { options } = podRedirect({}, { ipv6: true, dnsCapture: false, probeAddress });
  const rules = redirectRules(options).flatMap((family) => family.rules);
  const rule = present(
    rules.find((candidate) => candidate.needs === 'zones'),
    'there is one',
  );
  for (const family of FAMILIES) {
    const program = family === 'ip' ? 'iptables-nft' : 'ip6tables-nft';
    const zoned = await outsider.connect(web[family], 8080);
    zoned.write('first');
    t.is(await heard(zoned), 'first');
    await web.netns.exec(program, '-t', 'raw', '-F', rule.chain);
    await bulk(t, zoned);
    const plain = await outsider.connect(web[family], 8080);
    await bulk(t, plain);
    await web.netns.exec(program, '-t', 'raw', '-A', rule.chain, ...rule.text.split(' '));
    await Promise.all([bulk(t, zoned), bulk(t, plain)]);
    await Promise.all([end(zoned), end(plain)]);
  }
  const lines = await mesh.accessLines(4);
  t.deepEqual(new Set(lines.map((line) => line['error'])), new Set([undefined]));
});

import { once } from 'node:events';
import { Socket, createServer } from 'node:net';
import type { Server } from 'node:net';
import { MessageChannel } from 'node:worker_threads';
import type { ExecutionContext } from 'ava';
import { Piscina } from 'piscina';
import { NetnsHandle } from '../../lib/linux/netns-handle.ts';
import { listeningPorts, readSysctl, threadNetns, writeSysctl } from '../../lib/linux/netns.ts';
import { listenTcp, openTcp, setTcpOptions } from '../../lib/linux/sockets.ts';
import { Redirector } from '../../lib/redirect/apply.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { podRedirect } from '../../lib/redirect/pod-options.ts';
import { redirectRules } from '../../lib/redirect/rules.ts';
import { createPodPair } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';

const MARK = 0x539;
const HOME = threadNetns().inode;

function handle(t: ExecutionContext, netns: TestNetns): NetnsHandle {
  const opened = NetnsHandle.open(netns.path);
  t.teardown(() => opened.release());
  return opened;
}

async function redirect(netns: NetnsHandle): Promise<void> {
  const { options } = podRedirect(
    {},
    {
      ipv6: true,
      dnsCapture: false,
      probeAddress: { v4: '169.254.7.127', v6: 'fd16:9254:7127:1337:ffff:ffff:ffff:ffff' },
    },
  );
  const tool = new Redirector(await chooseTools({ ipv6: true, force: 'nft' }), '/tmp');
  await tool.apply({ netnsFd: netns.fd, inode: netns.identity.inode }, redirectRules(options));
}

/** Says its own address and the peer's to whoever connects. */
function sayAddresses(t: ExecutionContext, fd: number): Server {
  const server = createServer((socket) =>
    socket.end(`${socket.localAddress} ${socket.remoteAddress}`),
  );
  server.listen({ fd });
  t.teardown(() => server.close());
  return server;
}

async function ask(fd: number, host: string, port: number): Promise<string> {
  const socket = new Socket({ fd }).connect(port, host);
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
  await once(socket, 'close');
  return text;
}

// spec: inpod.md §5
test('a pool thread serves a redirected listener of another namespace and never leaves its own', async (t) => {
  const { pod, peer } = await createPodPair(t);
  await redirect(handle(t, pod));
  const pool = new Piscina({
    filename: new URL('../support/netns-listener.worker.ts', import.meta.url).href,
    minThreads: 1,
    maxThreads: 1,
    concurrentTasksPerWorker: 4,
    atomics: 'disabled',
  });
  t.teardown(() => pool.destroy());
  const cases: readonly [TestNetns, string, number, string][] = [
    [peer, '10.9.0.2', 15_006, '10.9.0.2 8080 from ::ffff:10.9.0.1\n'],
    [peer, 'fd09::2', 15_006, 'fd09::2 8080 from fd09::1\n'],
    [pod, '10.9.0.1', 15_001, '10.9.0.1 8080 from ::ffff:10.9.0.2\n'],
    [pod, 'fd09::1', 15_001, 'fd09::1 8080 from fd09::2\n'],
  ];
  for (const [from, host, port, answer] of cases) {
    const { port1, port2 } = new MessageChannel();
    const ready = once(port1, 'message');
    const done = pool.run(
      { path: pod.path, port, ready: port2 },
      // Its declared type is the list of the DOM's ports.
      { transferList: [port2] } as unknown as Parameters<Piscina['run']>[1],
    ) as Promise<{ before: string; after: string; errors: number }>;
    await ready;
    const text = await from.exec('bash', '-c', `exec 3<>/dev/tcp/${host}/8080; cat <&3`);
    port1.close();
    t.is(text, answer);
    t.deepEqual(await done, { before: HOME, after: HOME, errors: 3 });
  }
  t.is(threadNetns().inode, HOME);
});

for (const family of [4, 6] as const) {
  // spec: inpod.md §5
  test(`a marked socket keeps a foreign source address towards the pod (IPv${family})`, async (t) => {
    const { pod } = await createPodPair(t);
    const netns = handle(t, pod);
    await redirect(netns);
    const [podIp, client] = family === 4 ? ['10.9.0.2', '192.0.2.7'] : ['fd09::2', '2001:db8::7'];
    const app = listenTcp({
      netnsFd: netns.fd,
      address: podIp,
      port: 0,
      mark: 0,
      reusePort: false,
      transparent: 'off',
    });
    sayAddresses(t, app.fd);
    const open = (): number =>
      openTcp({ netnsFd: netns.fd, family, mark: MARK, noDelay: true, source: { ip: client } });
    t.is(await ask(open(), podIp, app.port), `${podIp} ${client}`);
    // One client address has all its ports for every destination: binding takes none of them.
    const many = Array.from({ length: 200 }, open);
    const answers = await Promise.all(many.map((fd) => ask(fd, podIp, app.port)));
    t.true(answers.every((text) => text === `${podIp} ${client}`));
    t.is(threadNetns().inode, HOME);
  });
}

test('listeners share a port, report it, and fail with the name of the call', async (t) => {
  const { pod } = await createPodPair(t);
  const netns = handle(t, pod);
  const options = {
    netnsFd: netns.fd,
    address: '::',
    port: 0,
    mark: MARK,
    reusePort: true,
    transparent: 'on',
  } as const;
  const first = listenTcp(options);
  sayAddresses(t, first.fd);
  t.true(first.transparent);
  const second = listenTcp({ ...options, port: first.port });
  sayAddresses(t, second.fd);
  t.is(second.port, first.port);
  t.deepEqual(listeningPorts(netns.fd), [first.port]);
  const taken = t.throws(() => listenTcp({ ...options, port: first.port, reusePort: false }));
  t.like(taken, { code: 'NATIVE_SYSCALL', detail: { call: 'bind', errno: 'EADDRINUSE' } });
  const foreign = t.throws(() =>
    openTcp({ netnsFd: netns.fd, family: 4, mark: 0, noDelay: true, bindLoopback: '203.0.113.9' }),
  );
  t.like(foreign, { detail: { call: 'bind', errno: 'EADDRNOTAVAIL', path: '203.0.113.9' } });
  t.like(
    t.throws(() => openTcp({ netnsFd: 1, family: 4, mark: 0, noDelay: true })),
    { detail: { call: 'setns', errno: 'EINVAL' } },
  );
  t.like(
    t.throws(() => listenTcp({ ...options, address: 'nonsense' })),
    {
      detail: { call: 'inet_pton', errno: 'EINVAL', path: 'nonsense' },
    },
  );
  t.is(threadNetns().inode, HOME);
});

// spec: dataplane.md §9
test('keepalive, user timeout and sysctls reach the kernel', async (t) => {
  const { pod } = await createPodPair(t);
  const netns = handle(t, pod);
  writeSysctl(netns.fd, 'net.ipv4.tcp_migrate_req', '1');
  t.is(readSysctl(netns.fd, 'net.ipv4.tcp_migrate_req'), '1');
  t.is((await pod.exec('sysctl', '-n', 'net.ipv4.tcp_migrate_req')).trim(), '1');
  const listener = listenTcp({
    netnsFd: netns.fd,
    address: '127.0.0.1',
    port: 0,
    mark: 0,
    reusePort: false,
    transparent: 'off',
  });
  const server = createServer((socket) => {
    setTcpOptions((socket as unknown as { _handle: { fd: number } })._handle.fd, {
      noDelay: true,
      userTimeoutMs: 4_000,
    });
  });
  server.listen({ fd: listener.fd });
  const fd = openTcp({
    netnsFd: netns.fd,
    family: 4,
    mark: 0,
    noDelay: true,
    bindLoopback: '127.0.0.6',
    keepalive: { timeMs: 180_000, intervalMs: 180_000, retries: 9 },
    userTimeoutMs: 3_000,
  });
  const socket = new Socket({ fd }).connect(listener.port, '127.0.0.1');
  t.teardown(() => {
    socket.destroy();
    server.close();
  });
  await once(socket, 'connect');
  t.is(socket.localAddress, '127.0.0.6');
  const sockets = await pod.exec('ss', '-tnoH', 'dst', '127.0.0.1', 'src', '127.0.0.6');
  t.regex(sockets, /keepalive,(?:2min\d+sec|3min)/);
});

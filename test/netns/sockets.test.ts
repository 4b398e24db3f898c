import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Socket, createServer } from 'node:net';
import type { Server } from 'node:net';
import { text } from 'node:stream/consumers';
import { MessageChannel } from 'node:worker_threads';
import type { ExecutionContext } from 'ava';
import { Piscina } from 'piscina';
import { present } from '../../lib/errors/assert.ts';
import { NetnsHandle } from '../../lib/linux/netns-handle.ts';
import { listeningPorts, readSysctl, threadNetns, writeSysctl } from '../../lib/linux/netns.ts';
import { acceptedNames, listenTcp, openTcp } from '../../lib/linux/sockets.ts';
import type { TcpOptions } from '../../lib/linux/sockets.ts';
import { namedEnds, socketFd } from '../../lib/net/socket.ts';
import { Redirector } from '../../lib/redirect/apply.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { podRedirect } from '../../lib/redirect/pod-options.ts';
import { redirectRules } from '../../lib/redirect/rules.ts';
import { SampleServers } from '../../services/local-mesh/sample-server.ts';
import { createPodPair } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { until } from '../support/until.ts';

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
  const tool = new Redirector(
    await chooseTools({ ipv6: true, force: 'nft', lockDir: '/tmp' }),
    '/tmp',
  );
  await tool.apply({ netnsFd: netns.fd, inode: netns.identity.inode }, redirectRules(options));
}

/** Sends its own address and the peer's over each connection. */
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
    [peer, '10.9.0.2', 15_006, '10.9.0.2 8080 from 10.9.0.1\n'],
    [peer, 'fd09::2', 15_006, 'fd09::2 8080 from fd09::1\n'],
    [pod, '10.9.0.1', 15_001, '10.9.0.1 8080 from 10.9.0.2\n'],
    [pod, 'fd09::1', 15_001, 'fd09::1 8080 from fd09::2\n'],
  ];
  for (const [from, host, port, answer] of cases) {
    const { port1, port2 } = new MessageChannel();
    const ready = once(port1, 'message');
    const done = pool.run(
      { path: pod.path, port, ready: port2 },
      // The option is declared as a list of the DOM's ports.
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
    // Each destination gets all ports of a client address: binding reserves none of them.
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
  const server = createServer();
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

/** Reads the options of an open socket in a process that inherits it. */
function optionsOf(fd: number): Promise<string> {
  // TCP_NODELAY, SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT, SO_MARK
  const options = '[6,1],[1,9],[6,4],[6,5],[6,6],[6,18],[1,36]';
  const read = `open(S, "+<&=3"); print join " ", map { unpack "i", getsockopt(S, $_->[0], $_->[1]) } ${options}`;
  const child = spawn('perl', ['-e', read], { stdio: ['ignore', 'pipe', 'inherit', fd] });
  return text(present(child.stdout, 'its output is a pipe'));
}

/** Listens in the namespace and returns the first connection from within. */
async function acceptOne(
  t: ExecutionContext,
  netnsFd: number,
  options: { readonly address: string; readonly to: string; readonly tcp: TcpOptions },
): Promise<{ readonly accepted: Socket; readonly client: Socket }> {
  const { address, to, tcp } = options;
  const plain = { netnsFd, port: 0, reusePort: true, transparent: 'off' } as const;
  const listener = listenTcp({ ...plain, address, mark: MARK, tcp });
  const server = createServer({ pauseOnConnect: true });
  server.listen({ fd: listener.fd });
  t.teardown(() => server.close());
  const connection = once(server, 'connection') as Promise<[Socket]>;
  const family = to.includes(':') ? 6 : 4;
  const fd = openTcp({ netnsFd, family, mark: 0, noDelay: true });
  const client = new Socket({ fd }).connect(listener.port, to);
  const [[accepted]] = await Promise.all([connection, once(client, 'connect')]);
  t.teardown(() => {
    client.destroy();
    accepted.destroy();
  });
  return { accepted, client };
}

// spec: dataplane.md §9
test('accepted sockets inherit what was set on the listening one', async (t) => {
  const { pod } = await createPodPair(t);
  const netns = handle(t, pod);
  const keepalive = { timeMs: 170_000, intervalMs: 20_500, retries: 7 };
  const all = { noDelay: true, keepalive, userTimeoutMs: 3_456 } as const;
  const cases: readonly [string, string, TcpOptions, RegExp][] = [
    ['::', '127.0.0.1', all, /^1 1 170 21 7 3456 1337$/],
    ['::', '::1', all, /^1 1 170 21 7 3456 1337$/],
    ['0.0.0.0', '127.0.0.1', all, /^1 1 170 21 7 3456 1337$/],
    ['::', '127.0.0.1', { noDelay: true, userTimeoutMs: 777 }, /^1 0 \d+ \d+ \d+ 777 1337$/],
    ['::', '::1', { noDelay: false }, /^0 0 \d+ \d+ \d+ 0 1337$/],
  ];
  for (const [address, to, tcp, expected] of cases) {
    const { accepted } = await acceptOne(t, netns.fd, { address, to, tcp });
    t.regex(await optionsOf(fdOf(accepted)), expected, `${address} ${to}`);
  }
});

test('the ends of an accepted socket are told in canonical form by one call', async (t) => {
  const { pod } = await createPodPair(t);
  const netns = handle(t, pod);
  // The C library writes this address with a dotted end.
  await pod.exec('ip', 'address', 'add', '::102:304/128', 'dev', 'lo', 'nodad');
  // The kernel adds its route later, in a worker.
  await until(
    async () => (await pod.exec('ip', '-6', 'route', 'get', '::102:304')).startsWith('local'),
    { what: 'the address to be in use' },
  );
  for (const ip of ['127.0.0.1', '::1', '::102:304']) {
    const options = { address: '::', to: ip, tcp: { noDelay: true } };
    const { accepted, client } = await acceptOne(t, netns.fd, options);
    const fd = fdOf(accepted);
    for (const redirected of [false, true]) {
      t.deepEqual(namedEnds(present(acceptedNames(fd, redirected), 'the peer is there')), {
        remote: { ip, port: client.localPort },
        local: { ip, port: client.remotePort },
        original: null,
      });
    }
    // Nothing reads the socket, so it stays open.
    client.resetAndDestroy();
    await until(() => acceptedNames(fd, true) === null, { what: 'the reset' });
  }
  t.like(
    t.throws(() => acceptedNames(99_999, true)),
    { code: 'NATIVE_SYSCALL', detail: { call: 'getpeername', errno: 'EBADF' } },
  );
  t.like(
    t.throws(() => acceptedNames(netns.fd, true)),
    { code: 'NATIVE_SYSCALL', detail: { errno: 'ENOTSOCK' } },
  );
});

function fdOf(socket: Socket): number {
  return present(socketFd(socket), 'an open socket has a descriptor');
}

test('the sample servers of a pod that goes away keep no connection of it', async (t) => {
  const { pod, peer } = await createPodPair(t);
  const servers = new SampleServers();
  t.teardown(() => servers.serve([]));
  const ports = [
    { port: 8080, protocol: 'http' as const },
    { port: 9090, protocol: 'greeting' as const },
  ];
  t.deepEqual(await servers.serve([{ uid: 'u', name: 'web', netns: pod.path, ports }]), {});
  const client = handle(t, peer);
  const ended = ports.map(async ({ port }) => {
    const fd = openTcp({ netnsFd: client.fd, family: 4, mark: 0, noDelay: true });
    const socket = new Socket({ fd }).connect(port, '10.9.0.2');
    t.teardown(() => socket.destroy());
    socket.on('error', () => {}).resume();
    await once(socket, 'connect');
    return { socket, closed: once(socket, 'close') };
  });
  const open = await Promise.all(ended);
  // The server of a greeting has the connection once it greets.
  await until(() => open[1]?.socket.bytesRead, { what: 'the greeting' });
  await servers.serve([]);
  for (const { closed } of open) await closed;
  t.deepEqual(await servers.serve([]), {});
});

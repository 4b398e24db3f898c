/** The socket that the CNI plugin asks, attacked: what it is sent, how slowly, by whom, and what it names as a namespace. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { AddServer } from '../../../services/node-agent/cni/add-server.ts';
import { DEFAULT_SELECTORS } from '../../../services/node-agent/eligibility.ts';
import { ask } from '../../../services/local-mesh/unix-http.ts';
import type { HttpAnswer } from '../../../services/local-mesh/unix-http.ts';
import { keptLog } from '../../support/actor-context.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { podRecord } from '../../support/pod-records.ts';
import { until } from '../../support/until.ts';

/** Anybody but the agent's own user. */
const NOBODY = 65_534;
const NETNS = '/proc/self/ns/net';
const EVENT = { Netns: NETNS, PodName: 'web', PodNamespace: 'demo', AgentDecides: true };

interface Served {
  readonly dir: string;
  readonly socket: string;
  /** The statuses of all answers. */
  readonly answered: number[];
  /** The uids of the pods that were told to be enrolled. */
  readonly placed: string[];
  post(body: unknown): Promise<HttpAnswer>;
}

/** Serves the events of one pod of the mesh, which is enrolled at once. */
async function served(t: ExecutionContext): Promise<Served> {
  const dir = await makeScratch('events');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const runDir = join(dir, 'run');
  const answered: number[] = [];
  const placed: string[] = [];
  const record = { ...podRecord({ uid: 'u-1', netns: NETNS }), name: 'web' };
  const server = new AddServer({
    runDir,
    hostRoot: '',
    rules: { excludedNamespaces: [], selectors: DEFAULT_SELECTORS },
    source: {
      find: (namespace, name) =>
        Promise.resolve(namespace === 'demo' && name === 'web' ? record : null),
      place: (uid) => void placed.push(uid),
    },
    pods: {
      outcome: () => Promise.resolve({ state: 'enabled', reason: null }),
      holderOf: () => null,
    },
    clock: systemClock,
    log: keptLog('node-agent').log,
    onAnswer: (status) => answered.push(status),
  });
  await server.listen();
  t.teardown(() => server.close());
  const socket = join(runDir, 'pluginevent.sock');
  const post = (body: unknown): Promise<HttpAnswer> =>
    ask({ socket, method: 'POST', path: '/cmdadd', body });
  return { dir, socket, answered, placed, post };
}

async function connected(socket: string): Promise<Socket> {
  const client = connect(socket);
  client.on('error', () => undefined);
  await once(client, 'connect');
  return client;
}

/** Sends bytes and returns what comes back until the server closes. */
async function said(socket: string, bytes: string): Promise<string> {
  const client = await connected(socket);
  client.write(bytes);
  return textOf(client);
}

test('an event is answered, and another pod or uid is not taken for the one known', async (t) => {
  const { post, placed, answered } = await served(t);
  t.is((await post(EVENT)).status, 200);
  t.deepEqual(placed, ['u-1']);
  t.is((await post({ ...EVENT, PodName: 'other' })).status, 500);
  t.is((await post({ ...EVENT, PodUID: 'u-2' })).status, 500);
  t.deepEqual(placed, ['u-1']);
  t.deepEqual(answered, [200, 500, 500]);
});

test('a malformed event is refused with its fields', async (t) => {
  const { post, placed } = await served(t);
  const address = { Address: { IP: '10.0.0.1' } };
  const cases: readonly (readonly [unknown, RegExp])[] = [
    [[], /event/],
    [null, /event/],
    [{}, /Netns.*PodName.*PodNamespace/],
    [{ ...EVENT, Netns: 'run/netns/x' }, /Netns/],
    [{ ...EVENT, Netns: `/${'x'.repeat(4_096)}` }, /Netns/],
    [{ ...EVENT, Netns: `${NETNS}\0x` }, /Netns/],
    [{ ...EVENT, PodName: 'x'.repeat(254) }, /PodName/],
    [{ ...EVENT, IPs: [{ Address: { IP: '10.0.0.256' } }] }, /IPs\.0\.Address\.IP/],
    [{ ...EVENT, IPs: Array.from({ length: 65 }, () => address) }, /IPs/],
    [{ ...EVENT, AgentDecides: 'yes' }, /AgentDecides/],
  ];
  for (const [event, problem] of cases) {
    const { status, body } = await post(event);
    t.is(status, 400, body);
    t.regex(body, problem);
  }
  t.deepEqual(placed, []);
});

test('a path that leads to no network namespace is refused, and blocks nothing', async (t) => {
  const { dir, post, placed } = await served(t);
  execFileSync('mkfifo', [join(dir, 'pipe')]);
  await writeFile(join(dir, 'file'), '');
  await symlink('loop', join(dir, 'loop'));
  const paths = ['/', '/dev/zero', '/nowhere', '/proc/self/ns/pid'];
  for (const path of [...paths, ...['pipe', 'file', 'loop'].map((name) => join(dir, name))]) {
    const { status, body } = await post({ ...EVENT, Netns: path });
    t.is(status, 400, path);
    t.regex(body, /no network namespace/, path);
  }
  t.deepEqual(placed, []);
  t.is((await post(EVENT)).status, 200);
});

test('a namespace without the addresses that the event tells is refused', async (t) => {
  const { post, placed } = await served(t);
  const told = (...ips: readonly string[]): unknown => ({
    ...EVENT,
    IPs: ips.map((ip) => ({ Address: { IP: ip } })),
  });
  const { status, body } = await post(told('192.0.2.1', '2001:db8::1'));
  t.is(status, 400);
  t.regex(body, /has none of the addresses 192\.0\.2\.1, 2001:db8::1/);
  t.deepEqual(placed, []);
  t.is((await post(told('192.0.2.1', '127.0.0.1'))).status, 200);
});

test('what is too long is cut before it is read', async (t) => {
  const { socket, post, answered } = await served(t);
  const body = JSON.stringify({ ...EVENT, x: 'y'.repeat(65_536) });
  const head = `POST /cmdadd HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n`;
  t.regex(await said(socket, `${head}content-length: ${body.length}\r\n\r\n${body}`), / 413 /);
  const chunk = `10000\r\n${' '.repeat(65_536)}\r\n`;
  t.regex(await said(socket, `${head}transfer-encoding: chunked\r\n\r\n${chunk}${chunk}`), / 413 /);
  t.regex(await said(socket, `${head}x: ${'y'.repeat(16_384)}\r\n\r\n`), / 431 /);
  t.regex(await said(socket, 'SSH-2.0-OpenSSH\r\n\r\n'), / 400 /);
  t.deepEqual(answered, [413, 413]);
  t.is((await post(EVENT)).status, 200);
});

test('clients that send nothing, or too slowly, are cut, and hold up no pod', async (t) => {
  const { socket, post } = await served(t);
  const head = 'POST /cmdadd HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n';
  // More than the server holds at a time.
  const clients: Socket[] = [];
  for (let index = 0; index < 600; index += 1) {
    const client = await connected(socket);
    client.write(['', 'POST /cmd', head, `${head}{`][index % 4] ?? '');
    const drip = setInterval(() => client.write(' '), 100);
    client.once('close', () => clearInterval(drip));
    client.resume();
    clients.push(client);
  }
  await until(() => clients.every(({ closed }) => closed), { what: 'all are cut' });
  t.is((await post(EVENT)).status, 200);
});

const rootTest = process.getuid?.() === 0 ? test : test.skip;

rootTest('nobody else reaches the socket, even where the folder is open', async (t) => {
  const { dir, socket } = await served(t);
  await chmod(dir, 0o755);
  const runDir = join(dir, 'run');
  t.is((await stat(runDir)).mode & 0o777, 0o750);
  t.is((await stat(socket)).mode & 0o777, 0o600);
  const asNobody = async (): Promise<string> => {
    const script = `require('net').connect(${JSON.stringify(socket)})
      .on('connect', () => process.exit(0))
      .on('error', ({ code }) => { process.stdout.write(code); process.exit(1); })`;
    const child = spawn(process.execPath, ['-e', script], {
      uid: NOBODY,
      gid: NOBODY,
      cwd: '/',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return textOf(child.stdout);
  };
  t.is(await asNobody(), 'EACCES');
  await chmod(runDir, 0o755);
  t.is(await asNobody(), 'EACCES');
});

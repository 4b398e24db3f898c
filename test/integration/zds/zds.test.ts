/** Tests both sides of the ZDS socket over real SEQPACKET sockets; a raw peer plays the misbehaving side. */
import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { chmod, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { closeFd, isNetns, openNetns } from '../../../lib/linux/netns.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import { connectSeqpacket, listenSeqpacket } from '../../../lib/linux/seqpacket.ts';
import type { SeqpacketConnection } from '../../../lib/linux/seqpacket.ts';
import { ZdsAgent } from '../../../lib/zds/agent.ts';
import type { ZdsPod } from '../../../lib/zds/agent.ts';
import {
  decodeAck,
  decodeHello,
  decodeRequest,
  encodeAck,
  encodeHello,
  encodeRequest,
} from '../../../lib/zds/frames.ts';
import type { ZdsHello } from '../../../lib/zds/frames.ts';
import { ACCEPT_INTERVAL_MS, MAX_CONNECTIONS } from '../../../lib/zds/limits.ts';
import { ZdsProxy } from '../../../lib/zds/proxy.ts';
import { keptLog } from '../../support/actor-context.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { until } from '../../support/until.ts';
import { makeScratch } from '../../support/leftovers.ts';

/** Anybody but the agent's own user. */
const NOBODY = 65_534;
const INFO = { name: 'web', namespace: 'demo', serviceAccount: 'web' };
const ADD = encodeRequest({ type: 'add', uid: 'u-1', info: INFO });

async function socketPath(t: ExecutionContext): Promise<string> {
  const dir = await makeScratch('zds');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return join(dir, 'z.sock');
}

function netns(t: ExecutionContext): NetnsHandle {
  const handle = NetnsHandle.open('/proc/self/ns/net');
  t.teardown(() => handle.release());
  return handle;
}

function pod(t: ExecutionContext, uid: string): ZdsPod {
  return { uid, info: INFO, netns: netns(t) };
}

/** Makes a proxy whose handler records its messages, and an agent that sends raw packets. */
async function proxyWithRawAgent(t: ExecutionContext): Promise<{
  proxy: ZdsProxy;
  told: string[];
  agents: SeqpacketConnection[];
  acks: (string | null)[];
  fail: Set<string>;
  hellos: ZdsHello[];
}> {
  const path = await socketPath(t);
  const told: string[] = [];
  const acks: (string | null)[] = [];
  const agents: SeqpacketConnection[] = [];
  const fail = new Set<string>();
  const hellos: ZdsHello[] = [];
  const server = listenSeqpacket(path, { mode: 0o600, onError: (error) => t.fail(error.message) });
  server.onConnection = (connection) => {
    let greeted = false;
    connection.onMessage = ({ data }) => {
      if (greeted) acks.push(decodeAck(data));
      else hellos.push(decodeHello(data));
      greeted = true;
    };
    agents.push(connection);
  };
  const proxy = new ZdsProxy(
    { path, hello: { group: 0, state: 'serving' }, clock: systemClock, log: keptLog('p').log },
    {
      sessionStarted: () => void told.push('session'),
      sessionEnded: () => void told.push('ended'),
      add: async (uid, _info, fd) => {
        told.push(`add ${uid} ${isNetns(fd)}`);
        closeFd(fd);
        if (fail.has(uid)) throw new Error('x'.repeat(5_000));
      },
      del: async (uid) => void told.push(`del ${uid}`),
      snapshot: async (uids) => void told.push(`snapshot ${[...uids].join()}`),
    },
  );
  t.teardown(async () => {
    await proxy.close();
    server.close();
    for (const agent of agents) agent.close();
  });
  proxy.start();
  await until(() => agents.length === 1, { what: 'the session' });
  return { proxy, told, agents, acks, fail, hellos };
}

/** Counts the descriptors of namespaces that this process holds. */
function openNamespaces(): number {
  return readdirSync('/proc/self/fd').filter((fd) => {
    const path = `/proc/self/fd/${fd}`;
    return existsSync(path) && readlinkSync(path).startsWith('net:');
  }).length;
}

// spec: inpod.md §2
test('Hello and Ack have the bytes upstream sends', (t) => {
  t.is(Buffer.from(encodeHello({ group: 0, state: 'serving' })).toString('hex'), '0801');
  t.is(Buffer.from(encodeAck(null)).toString('hex'), '0a00');
  t.deepEqual(decodeRequest(ADD), { type: 'add', uid: 'u-1', info: INFO });
  t.true(encodeAck('ä'.repeat(4_000)).length <= 1_024);
});

// spec: inpod.md §3
test('a session: one answer per message, snapshot semantics, errors that keep it alive', async (t) => {
  const { told, agents, acks, fail } = await proxyWithRawAgent(t);
  const agent = agents[0];
  const fd = openNetns('/proc/self/ns/net');
  t.teardown(() => closeFd(fd));
  const say = async (packet: Uint8Array, passed?: number): Promise<void> => {
    const before = acks.length;
    await agent?.send(packet, passed);
    await until(() => acks.length === before + 1, { what: 'an answer' });
  };
  await say(ADD, fd);
  await say(encodeRequest({ type: 'keep', uid: 'u-2' }));
  await say(encodeRequest({ type: 'keep', uid: 'u-3' }));
  await say(encodeRequest({ type: 'del', uid: 'u-3' }));
  await say(encodeRequest({ type: 'snapshotSent' }));
  fail.add('u-1');
  await say(ADD, fd);
  t.regex(acks.pop() ?? '', /^x{900,}…$/);
  await say(encodeRequest({ type: 'del', uid: 'u-9' }));
  t.deepEqual(told, ['session', 'add u-1 true', 'snapshot u-1,u-2', 'add u-1 true', 'del u-9']);
  t.true(acks.every((ack) => ack === null));
});

// spec: inpod.md §2
test.serial(
  'packets that break the protocol are answered, counted and end the session only',
  async (t) => {
    const cases: readonly [RegExp, (agent: SeqpacketConnection, fd: number) => Promise<void>][] = [
      [/undecodable/, (agent) => agent.send(Buffer.from('ffffff', 'hex'))],
      [/without a payload/, (agent) => agent.send(Buffer.from('2200', 'hex'))],
      [/without a descriptor/, (agent) => agent.send(ADD)],
      [
        /without workload_info/,
        (agent, fd) => agent.send(encodeRequest({ type: 'add', uid: 'u-1', info: null }), fd),
      ],
      [
        /del with a descriptor/,
        (agent, fd) => agent.send(encodeRequest({ type: 'del', uid: 'u-1' }), fd),
      ],
      [/without a uid/, (agent) => agent.send(encodeRequest({ type: 'keep', uid: '' }))],
      [/truncated/, (agent, fd) => agent.send(Buffer.alloc(2_000, 1), fd)],
    ];
    const { proxy, acks, agents, told } = await proxyWithRawAgent(t);
    const fd = openNetns('/proc/self/ns/net');
    t.teardown(() => closeFd(fd));
    for (const [index, [pattern, misbehave]] of cases.entries()) {
      const agent = await until(() => agents[index], { what: 'a session', timeoutMs: 40_000 });
      const before = openNamespaces();
      await misbehave(agent, fd);
      await until(() => acks.length === index + 1, { what: String(pattern) });
      t.regex(acks[index] ?? '', pattern);
      await until(() => !agent.open, { what: 'the end of the session' });
      t.is(openNamespaces(), before, 'what it passed is closed');
      t.is(proxy.counters.protocolErrors, index + 1);
      // The next attempt follows at once instead of after the growing delay.
      await proxy.close();
      proxy.start();
    }
    t.false(told.some((line) => line.startsWith('add')));
  },
);

// spec: inpod.md §3
test('after the snapshot Keep and a second end of it break the protocol', async (t) => {
  const { acks, agents } = await proxyWithRawAgent(t);
  await agents[0]?.send(encodeRequest({ type: 'snapshotSent' }));
  await until(() => acks.length === 1, { what: 'an answer' });
  await agents[0]?.send(encodeRequest({ type: 'keep', uid: 'u-1' }));
  await until(() => acks.length === 2, { what: 'an answer' });
  t.regex(acks[1] ?? '', /Keep after/);
  await until(() => agents.length === 2, { what: 'a new session' });
});

test('an agent that was away for long is found within a second', async (t) => {
  const path = await socketPath(t);
  const clock = new FakeClock();
  const proxy = new ZdsProxy(
    { path, hello: { group: 0, state: 'serving' }, clock, log: keptLog('p').log },
    {
      sessionStarted: () => undefined,
      sessionEnded: () => undefined,
      add: async (_uid, _info, fd) => closeFd(fd),
      del: async () => undefined,
      snapshot: async () => undefined,
    },
  );
  t.teardown(() => proxy.close());
  proxy.start();
  await clock.advance(300_000);
  t.false(proxy.connected);
  const server = listenSeqpacket(path, { mode: 0o600, onError: (error) => t.fail(error.message) });
  server.onConnection = (connection) => t.teardown(() => connection.close());
  t.teardown(() => server.close());
  await clock.advance(1_000);
  t.true(proxy.connected);
});

test('a proxy that drains says so in a new session to an agent that heeds it', async (t) => {
  const { proxy, agents, acks, told, hellos } = await proxyWithRawAgent(t);
  await agents[0]?.send(encodeRequest({ type: 'snapshotSent', generations: true }));
  await until(() => acks.length === 1, { what: 'an answer' });
  proxy.drain();
  await until(() => agents.length === 2, { what: 'another session' });
  await agents[1]?.send(encodeRequest({ type: 'keep', uid: 'u-1' }));
  await until(() => acks.length === 2, { what: 'an answer' });
  await agents[1]?.send(encodeRequest({ type: 'snapshotSent', generations: true }));
  await until(() => acks.length === 3, { what: 'an answer' });
  await agents[1]?.send(encodeRequest({ type: 'del', uid: 'u-1' }));
  await until(() => told.includes('del u-1'), { what: 'Del' });
  t.deepEqual(hellos, [
    { group: 0, state: 'serving' },
    { group: 0, state: 'draining' },
  ]);
});

test('to another agent a proxy that drains keeps its session, and makes no new one', async (t) => {
  const { proxy, agents, acks, told } = await proxyWithRawAgent(t);
  await agents[0]?.send(encodeRequest({ type: 'snapshotSent' }));
  await until(() => acks.length === 1, { what: 'an answer' });
  proxy.drain();
  await agents[0]?.send(encodeRequest({ type: 'del', uid: 'u-1' }));
  await until(() => told.includes('del u-1'), { what: 'Del' });
  agents[0]?.close();
  await until(() => told.includes('ended'), { what: 'the end of the session' });
  await new Promise((resolve) => setImmediate(resolve));
  t.is(agents.length, 1);
  t.false(proxy.connected);
});

/** Makes an agent, and proxies that send raw packets. */
async function rawProxies(
  t: ExecutionContext,
  pods: ZdsPod[],
  clock = new FakeClock(),
): Promise<{
  agent: ZdsAgent;
  clock: FakeClock;
  path: string;
  connect: (hello?: Uint8Array | null) => { connection: SeqpacketConnection; got: string[] };
}> {
  const path = await socketPath(t);
  const agent = new ZdsAgent({
    path,
    mode: 0o600,
    clock,
    log: keptLog('agent').log,
    snapshot: () => pods,
    onProxies: () => undefined,
  });
  agent.start();
  t.teardown(() => agent.close());
  const connect = (
    hello: Uint8Array | null = encodeHello({ group: 0, state: 'serving' }),
  ): { connection: SeqpacketConnection; got: string[] } => {
    const connection = connectSeqpacket(path);
    t.teardown(() => connection.close());
    const got: string[] = [];
    connection.onMessage = ({ data, fds }) => {
      const request = decodeRequest(data);
      got.push(`${request.type}${'uid' in request ? ` ${request.uid}` : ''} ${fds.length}`);
      for (const fd of fds) closeFd(fd);
    };
    if (hello !== null) void connection.send(hello);
    return { connection, got };
  };
  return { agent, clock, path, connect };
}

test('a proxy that connects gets the snapshot, one message at a time', async (t) => {
  const pods = [pod(t, 'u-1'), { ...pod(t, 'u-2'), netns: null }];
  const { agent, connect } = await rawProxies(t, pods);
  const { connection, got } = connect();
  await until(() => got.length === 1, { what: 'the first message' });
  const served = agent.ensure(pods[0] as ZdsPod);
  for (let count = 1; count <= 3; count += 1) {
    await until(() => got.length === count, { what: 'a message' });
    await connection.send(encodeAck(null));
  }
  await served;
  t.deepEqual(got, ['add u-1 1', 'keep u-2 0', 'snapshotSent 0']);
  await until(() => agent.connections[0]?.synced === true, { what: 'the end of the snapshot' });
});

test('a draining proxy keeps what it has and gets no Add, but Del', async (t) => {
  const pods = [pod(t, 'u-1')];
  const { agent, connect } = await rawProxies(t, pods);
  const { connection, got } = connect(encodeHello({ group: 7, state: 'draining' }));
  await until(() => got.length === 1, { what: 'Keep' });
  await connection.send(encodeAck(null));
  await until(() => got.length === 2, { what: 'the end of the snapshot' });
  await connection.send(encodeAck(null));
  await t.throwsAsync(agent.ensure(pods[0] as ZdsPod), { code: 'ZDS_NO_PROXY' });
  const gone = agent.del('u-1');
  await until(() => got.length === 3, { what: 'Del' });
  await connection.send(encodeAck(null));
  await gone;
  t.deepEqual(got, ['keep u-1 0', 'snapshotSent 0', 'del u-1 0']);
});

const rootTest = process.getuid?.() === 0 ? test : test.skip;

rootTest(
  'a proxy of another user is turned away, also where the socket is open to it',
  async (t) => {
    const { agent, path, connect } = await rawProxies(t, [pod(t, 'u-1')]);
    await chmod(dirname(path), 0o755);
    await chmod(path, 0o666);
    process.seteuid?.(NOBODY);
    const { connection, got } = ((): ReturnType<typeof connect> => {
      try {
        return connect();
      } finally {
        process.seteuid?.(0);
      }
    })();
    await until(() => !connection.open, { what: 'it is turned away' });
    t.deepEqual(got, []);
    t.is(agent.counters.broken, 1);
    t.deepEqual(agent.connections, []);
  },
);

test('beyond the bound of proxies of a node one more is turned away, until another leaves', async (t) => {
  const clock = new FakeClock();
  const { agent, connect } = await rawProxies(t, [], clock);
  const hello = encodeHello({ group: 1, state: 'draining' });
  const proxies = [];
  const join = async (): Promise<SeqpacketConnection> => {
    const { connection } = connect(hello);
    const before = agent.counters.accepted;
    await until(() => agent.counters.accepted === before + 1, { what: 'a connection' });
    // One connection per 200 ms is accepted.
    await clock.advance(ACCEPT_INTERVAL_MS);
    return connection;
  };
  while (proxies.length < MAX_CONNECTIONS) proxies.push(await join());
  const refused = await join();
  await until(() => !refused.open, { what: 'the end of the one too many' });
  t.is(agent.connections.length, MAX_CONNECTIONS);
  proxies[0]?.close();
  await until(() => agent.connections.length === MAX_CONNECTIONS - 1, { what: 'one to leave' });
  await join();
  t.is(agent.connections.length, MAX_CONNECTIONS);
});

test('a late answer is told as a time-out and never taken for the next one', async (t) => {
  const clock = new FakeClock();
  const { agent, connect } = await rawProxies(t, [], clock);
  const { connection, got } = connect();
  await until(() => got.length === 1, { what: 'the snapshot' });
  await connection.send(encodeAck(null));
  await until(() => agent.connections[0]?.synced, { what: 'the snapshot answered' });
  const late = pod(t, 'u-late');
  const first = t.throwsAsync(agent.ensure(late), { code: 'ZDS_TIMEOUT' });
  await until(() => got.length === 2, { what: 'Add' });
  await clock.advance(5_001);
  await first;
  const second = agent.ensure(pod(t, 'u-2'));
  await connection.send(encodeAck('late'));
  await until(() => got.length === 3, { what: 'the next Add' });
  await connection.send(encodeAck(null));
  await second;
  t.false(agent.served(late));

  const third = t.throwsAsync(agent.ensure(late), { code: 'ZDS_TIMEOUT' });
  await until(() => got.length === 4, { what: 'Add' });
  await clock.advance(5_001);
  await third;
  await clock.advance(25_001);
  await until(() => agent.connections.length === 0, { what: 'the connection to be cut' });
  t.is(agent.counters.broken, 1);
});

test('proxies that break the protocol are cut off', async (t) => {
  const clock = new FakeClock();
  const { agent, connect } = await rawProxies(t, [], clock);
  const gone = async (): Promise<void> => {
    await until(() => agent.connections.length === 0, { what: 'the connection to be cut' });
    await clock.advance(200);
  };
  connect(Buffer.from('0805', 'hex'));
  await until(() => agent.counters.broken === 1, { what: 'a wrong Hello' });
  await gone();
  const silent = connect(null);
  await until(() => agent.connections.length === 1, { what: 'the silent one' });
  await clock.advance(5_001);
  await until(() => agent.counters.broken === 2, { what: 'a missing Hello' });
  await gone();
  t.false(silent.connection.open && silent.got.length > 0);
  const talker = connect();
  await until(() => talker.got.length === 1, { what: 'the snapshot' });
  await talker.connection.send(encodeAck(null));
  await talker.connection.send(encodeAck(null));
  await until(() => agent.counters.broken === 3, { what: 'an unasked answer' });
  await gone();
  const long = connect();
  await until(() => long.got.length === 1, { what: 'the snapshot' });
  await long.connection.send(Buffer.alloc(1_500));
  await until(() => agent.counters.broken === 4, { what: 'a long answer' });
  t.is(agent.counters.accepted, 4);
});

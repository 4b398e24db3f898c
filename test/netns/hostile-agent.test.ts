/** A node agent whose Adds carry something else than the network namespace of a pod, against a real proxy that serves pods. */
import { execFile, execFileSync } from 'node:child_process';
import { closeSync, constants, openSync, readdirSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { ExecutionContext } from 'ava';
import { listenSeqpacket } from '../../lib/linux/seqpacket.ts';
import type { SeqpacketConnection } from '../../lib/linux/seqpacket.ts';
import { decodeAck, encodeRequest } from '../../lib/zds/frames.ts';
import { makeScratch } from '../support/leftovers.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { ProxyMesh, exchange } from '../support/proxy-kit.ts';
import type { ProxiedPod } from '../support/proxy-kit.ts';
import { until } from '../support/until.ts';

const PYTHON = '/usr/bin/python3';
/** Plays an agent for one session: passes many descriptors in one packet, then prints the answer and the length of what follows. */
const MANY_DESCRIPTORS = `
import os, socket, sys
path, packet, count = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(path)
server.listen()
peer, _ = server.accept()
peer.recv(1024)
socket.send_fds(peer, [packet], [os.open('/proc/self/ns/net', os.O_RDONLY)] * count)
print(peer.recv(1024).hex(), len(peer.recv(1024)))
os.unlink(path)
`;
/** Often enough that a descriptor kept for each would show. */
const REPETITIONS = 20;
/** Descriptors that a process opens and closes for other reasons. */
const OTHER_DESCRIPTORS = 10;

/** An agent of one proxy that sends what a test wants. */
class RawAgent {
  sessions = 0;
  readonly #path: string;
  readonly #answers: (string | null)[] = [];
  #connection: SeqpacketConnection | null = null;
  #close: () => void = () => undefined;

  constructor(path: string) {
    this.#path = path;
  }

  listen(t: ExecutionContext): void {
    const onError = (error: Error): void => t.fail(error.message);
    const server = listenSeqpacket(this.#path, { mode: 0o600, onError });
    server.onConnection = (connection) => {
      let greeted = false;
      connection.onMessage = ({ data }) => {
        if (greeted) this.#answers.push(decodeAck(data));
        greeted = true;
      };
      this.#connection = connection;
      this.sessions += 1;
    };
    this.#close = () => {
      server.close();
      this.#connection?.close();
    };
  }

  close(): void {
    this.#close();
  }

  /** Sends an Add and resolves to the error that answers it; null = the pod is served. */
  add(pod: Pick<ProxiedPod, 'name'>, fd?: number): Promise<string | null> {
    return this.#ask(addOf(pod), fd);
  }

  /** Begins the next session: the pod is the whole snapshot. */
  async greet(pod: ProxiedPod, session: number): Promise<void> {
    await until(() => this.sessions === session, { what: `session ${session}` });
    const answers = [
      await this.add(pod, pod.netnsFd),
      await this.#ask(encodeRequest({ type: 'snapshotSent' })),
    ];
    if (answers.some((answer) => answer !== null)) throw new Error(answers.join());
  }

  async #ask(packet: Uint8Array, fd?: number): Promise<string | null> {
    const before = this.#answers.length;
    await this.#connection?.send(packet, fd);
    await until(() => this.#answers.length > before, { what: 'an answer' });
    return this.#answers.at(-1) ?? null;
  }
}

function addOf({ name }: Pick<ProxiedPod, 'name'>): Uint8Array {
  const info = { name, namespace: 'demo', serviceAccount: name };
  return encodeRequest({ type: 'add', uid: `uid-${name}`, info });
}

/** Opens one of each kind of file that is no network namespace. */
function otherFiles(folder: string): ReadonlyMap<string, number> {
  const [file, pipe] = [join(folder, 'file'), join(folder, 'pipe')];
  writeFileSync(file, 'no namespace');
  execFileSync('mkfifo', [pipe]);
  const open = (path: string): number => openSync(path, 'r');
  return new Map([
    ['a regular file', open(file)],
    ['a pipe', openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK)],
    ['a folder', open(folder)],
    ['a device', open('/dev/null')],
    ['a mount namespace', open('/proc/self/ns/mnt')],
    ['a user namespace', open('/proc/self/ns/user')],
  ]);
}

// spec: inpod.md §2
test('an Add with anything but one network namespace is refused, and the proxy serves its pods on', async (t) => {
  const folder = await makeScratch('hostile-agent');
  t.teardown(() => rm(folder, { recursive: true }));
  const mesh = await ProxyMesh.start(t, { client: 'node-1', api: 'node-2' });
  const client = await mesh.addPod('client', 'node-1');
  const api = await mesh.addPod('api', 'node-2');
  await api.serve(8080, (socket) => socket.pipe(socket));
  mesh.nodes['node-2'].start();
  const path = join(folder, 'zds.sock');
  const agent = new RawAgent(path);
  agent.listen(t);
  t.teardown(() => agent.close());
  const proxy = mesh.nodes['node-1'].another(1, { INPOD_UDS: path });
  await agent.greet(client, 1);
  await Promise.all([proxy.ready(), mesh.nodes['node-2'].ready()]);
  const served = async (when: string): Promise<void> => {
    const socket = await client.connect(api.ip, 8080);
    t.is(await exchange(socket, when), when);
    socket.destroy();
    t.is(proxy.child.exitCode, null);
  };
  const kept = await client.connect(api.ip, 8080);
  t.is(await exchange(kept, 'first'), 'first');

  const held = (): number => readdirSync(`/proc/${proxy.child.pid}/fd`).length;
  const before = held();
  const others = otherFiles(folder);
  t.teardown(() => {
    for (const fd of others.values()) closeSync(fd);
  });
  for (let round = 0; round < REPETITIONS; round += 1) {
    for (const [what, fd] of others) {
      const refusal = 'the descriptor is no network namespace';
      t.is(await agent.add({ name: 'other' }, fd), `Add of uid-other: ${refusal}`, what);
      // The pod that is served keeps its namespace.
      t.is(await agent.add(client, fd), `Add of uid-client: ${refusal}`, what);
    }
  }
  t.is(agent.sessions, 1);
  t.is(await proxy.pending(), 'ready');
  t.true(held() - before < OTHER_DESCRIPTORS, `${before} descriptors, then ${held()}`);
  await served('after other files');

  t.is(await agent.add({ name: 'other' }), 'Add of uid-other without a descriptor');
  await agent.greet(client, 2);
  await served('after none');

  let session = 2;
  for (const [count, answer] of [
    [2, /2 descriptors in one packet/],
    [253, /truncated/],
  ] as const) {
    agent.close();
    const packet = Buffer.from(addOf({ name: 'other' })).toString('hex');
    const args = ['-c', MANY_DESCRIPTORS, path, packet, String(count)];
    const { stdout } = await promisify(execFile)(PYTHON, args);
    const [ack = '', next] = stdout.trim().split(' ');
    t.regex(decodeAck(Buffer.from(ack, 'hex')) ?? '', answer);
    t.is(next, '0', 'the session has ended');
    agent.listen(t);
    session += 1;
    await agent.greet(client, session);
    await served(`after ${count}`);
  }
  t.true(held() - before < OTHER_DESCRIPTORS, `${before} descriptors, then ${held()}`);
  t.is(await exchange(kept, 'last'), 'last');
});

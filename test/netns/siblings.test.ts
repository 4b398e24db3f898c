/** Real proxies that share one session with a node agent that hands new pods to its newest session alone, as istio-cni does. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Socket } from 'node:net';
import type { ExecutionContext } from 'ava';
import { listenersByPort } from '../../lib/linux/netns.ts';
import { makeScratch } from '../support/leftovers.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { GONE, NewestAgent } from '../support/newest-agent.ts';
import { ProxyMesh, exchange } from '../support/proxy-kit.ts';
import type { ProxiedPod } from '../support/proxy-kit.ts';
import type { ProxyProcess } from '../support/proxy-process.ts';
import { until } from '../support/until.ts';

const OUTBOUND = 15_001;

/** A node whose proxies share a session; its pods speak to `api` on another node. */
class SharingNode {
  readonly agent: NewestAgent;
  readonly api: ProxiedPod;
  readonly #mesh: ProxyMesh;
  readonly #environment: Record<string, string>;

  private constructor(t: ExecutionContext, mesh: ProxyMesh, api: ProxiedPod, dir: string) {
    this.#mesh = mesh;
    this.api = api;
    const agentPath = join(dir, 'z.sock');
    this.agent = new NewestAgent(t, agentPath);
    this.#environment = {
      INPOD_UDS: agentPath,
      WEFT_NODE_PROXY_SIBLINGS: join(dir, 'siblings', 's.sock'),
      CONNECTION_TERMINATION_DEADLINE: '600s',
    };
  }

  static async start(t: ExecutionContext): Promise<SharingNode> {
    const dir = await makeScratch('sharing');
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const mesh = await ProxyMesh.start(t, { one: 'node-1', two: 'node-1', api: 'node-2' });
    const api = await mesh.addPod('api', 'node-2');
    await api.serve(8080, (socket) => socket.pipe(socket));
    mesh.nodes['node-2'].start();
    await mesh.nodes['node-2'].ready();
    return new SharingNode(t, mesh, api, dir);
  }

  async proxy(group = 1): Promise<ProxyProcess> {
    const proxy = this.#mesh.nodes['node-1'].another(group, this.#environment);
    await proxy.ready();
    return proxy;
  }

  /** Makes a pod, and hands it to the agent; resolves when the agent has its answer. */
  async pod(t: ExecutionContext, name: string): Promise<ProxiedPod> {
    const pod = await this.#mesh.addPod(name, 'node-1');
    t.is(await this.agent.add(pod.zds.uid, pod.netns.path), null);
    return pod;
  }

  async speak(t: ExecutionContext, pod: ProxiedPod, words: string): Promise<Socket> {
    const socket = await pod.connect(this.api.ip, 8080);
    t.is(await exchange(socket, words), words);
    return socket;
  }
}

/** Number of processes that listen in the pod. */
function listeners(pod: ProxiedPod): number {
  return listenersByPort(pod.netnsFd).get(OUTBOUND) ?? 0;
}

const isHolder = (proxy: ProxyProcess): boolean => proxy.logged('zds.holder-elected').length > 0;

/** Waits until the holder counts so many siblings that have its pods. */
async function siblingsOf(holder: ProxyProcess | undefined, count: number): Promise<void> {
  const line = `\nweft_node_proxy_zds_siblings ${count}\n`;
  await until(async () => (await holder?.text('/node-proxy/stats'))?.includes(line), {
    what: `${count} siblings`,
  });
}

test('when the holder is killed, another proxy takes its session and no pod is placed again', async (t) => {
  const node = await SharingNode.start(t);
  const first = await node.proxy();
  const second = await node.proxy();
  const one = await node.pod(t, 'one');
  t.is(listeners(one), 2, 'both listen when the agent has its answer');
  const two = await node.pod(t, 'two');
  const third = await node.proxy();
  t.is(listeners(one), 3, 'a proxy that joins gets the snapshot');
  t.is(node.agent.accepted, 1);
  await siblingsOf(first, 2);
  t.deepEqual([first, second, third].map(isHolder), [true, false, false]);

  first.kill('SIGKILL');
  await first.ended;
  // Nobody holds the session, or the next holder has just begun its own.
  const answers = await node.agent.del(two.zds.uid);
  t.true(answers.every((answer) => answer === GONE || answer === null));
  const rest = [second, third];
  await until(() => rest.some(isHolder), { what: 'the next holder' });
  await until(() => listeners(two) === 0, { what: 'the removed pod to be left' });
  t.is(listeners(one), 2);
  await node.speak(t, one, 'after');

  await siblingsOf(rest.find(isHolder), 1);
  t.is(await node.agent.add(two.zds.uid, two.netns.path), null);
  t.is(listeners(two), 2, 'new pods go to both');
  for (const proxy of rest) {
    const placed = proxy.logged('pod.listening').map(({ uid }) => uid);
    t.is(placed.filter((uid) => uid === one.zds.uid).length, 1);
  }
  await node.speak(t, two, 'again');
  t.is(node.agent.accepted, 2);
});

test('a holder that drains hands the session over, carries on, and learns of removals', async (t) => {
  const node = await SharingNode.start(t);
  const first = await node.proxy(1);
  const one = await node.pod(t, 'one');
  const kept = await node.speak(t, one, 'first');
  const second = await node.proxy(2);
  t.is(listeners(one), 2);
  first.kill('SIGTERM');
  await until(() => isHolder(second), { what: 'the next holder' });
  await until(() => node.agent.sessions.length === 1 && node.agent.accepted === 2, {
    what: 'the end of the former session',
  });
  t.is(listeners(one), 1);
  t.is(await exchange(kept, 'second'), 'second');
  const two = await node.pod(t, 'two');
  await node.speak(t, two, 'new');
  t.is(first.child.exitCode, null);
  // The pod's own deadline is that of the process; the drain ends when its last connection does.
  t.deepEqual(await node.agent.del(one.zds.uid), [null]);
  await until(() => listeners(one) === 0, { what: 'the removed pod to be left' });
  kept.end();
  t.is(await first.ended, 0, JSON.stringify(first.lines.slice(-10)));
  t.is(await second.pending(), 'ready');
});

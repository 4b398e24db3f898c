import type { Socket } from 'node:net';
import type { ExecutionContext } from 'ava';
import { ProxyMesh, exchange } from '../support/proxy-kit.ts';
import type { ProxiedPod } from '../support/proxy-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { until } from '../support/until.ts';

/** A pod on each of two nodes; the client's node has no proxy yet, the server's has one. */
async function twoPods(t: ExecutionContext) {
  const mesh = await ProxyMesh.start(t, { client: 'node-1', api: 'node-2' });
  const client = await mesh.addPod('client', 'node-1');
  const api = await mesh.addPod('api', 'node-2');
  await api.serve(8080, (socket) => socket.pipe(socket));
  return { mesh, client, api };
}

/** New connections one after another, on several lanes, until stopped; what failed. */
class FreshConnections {
  readonly failures: string[] = [];
  answered = 0;
  #stopped = false;
  readonly #lanes: Promise<void>[];

  constructor(client: ProxiedPod, ip: string, lanes = 4) {
    this.#lanes = Array.from({ length: lanes }, () => this.#run(client, ip));
  }

  async more(count: number): Promise<void> {
    const before = this.answered;
    await until(() => this.answered >= before + count || this.failures.length > 0, {
      what: `${count} more connections`,
      timeoutMs: 30_000,
    });
  }

  async stop(): Promise<readonly string[]> {
    this.#stopped = true;
    await Promise.all(this.#lanes);
    return this.failures;
  }

  async #run(client: ProxiedPod, ip: string): Promise<void> {
    while (!this.#stopped) {
      let socket: Socket | null = null;
      try {
        socket = await client.connect(ip, 8080);
        const answer = await exchange(socket, 'x');
        if (answer === 'x') this.answered += 1;
        else this.failures.push(`answered ${answer}`);
      } catch (error) {
        this.failures.push(String(error));
      }
      socket?.destroy();
    }
  }
}

test('generations of both nodes replace each other under load: nothing fails, what is carried lives on', async (t) => {
  const { mesh, client, api } = await twoPods(t);
  const [one, two] = [mesh.nodes['node-1'], mesh.nodes['node-2']];
  const deadline = { CONNECTION_TERMINATION_DEADLINE: '600s' };
  let current = [one.another(1, deadline), two.another(1, deadline)];
  await Promise.all(current.map((proxy) => proxy.ready()));
  const kept = await client.connect(api.ip, 8080);
  t.is(await exchange(kept, 'first'), 'first');
  const load = new FreshConnections(client, api.ip);
  const draining = [];
  for (let group = 2; group <= 4; group += 1) {
    await load.more(20);
    const next = [one.another(group, deadline), two.another(group, deadline)];
    await Promise.all(next.map((proxy) => proxy.ready()));
    for (const proxy of current) proxy.kill('SIGTERM');
    draining.push(...current);
    current = next;
    await load.more(40);
    t.is(await exchange(kept, `after ${group}`), `after ${group}`);
  }
  t.deepEqual(await load.stop(), []);
  // The first generation carries the connection; those after it had nothing left to carry.
  const [first, second, ...later] = draining;
  await Promise.all(later.map((proxy) => proxy.ended));
  t.deepEqual([first?.child.exitCode, second?.child.exitCode], [null, null]);
  kept.end();
  t.deepEqual(
    await Promise.all(draining.map((proxy) => proxy.ended)),
    draining.map(() => 0),
  );
  for (const proxy of current) proxy.kill('SIGTERM');
  await Promise.all(current.map((proxy) => proxy.ended));
});

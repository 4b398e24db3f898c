/** Tests a node proxy that runs out of descriptors (docs/decisions/budgets.md). */
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import type { Socket } from 'node:net';
import { netnsTest as test } from '../support/netns-test.ts';
import { ProxyMesh, exchange } from '../support/proxy-kit.ts';
import type { ProxiedPod } from '../support/proxy-kit.ts';
import type { ProxyProcess } from '../support/proxy-process.ts';
import { until } from '../support/until.ts';

const DESCRIPTORS = 400;
const MANY = { WEFT_MAX_CONNECTIONS: '100000' };

/** Reads the processor time of a process, in hundredths of a second. */
function ticks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return Number(fields[11]) + Number(fields[12]);
}

/** Opens many connections; some are closed again. */
async function crowd(
  client: ProxiedPod,
  ip: string,
  count: number,
  port = 8080,
): Promise<Socket[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const socket = await client.connect(ip, port);
      socket.on('error', () => undefined);
      return socket.resume();
    }),
  );
}

/** True when a new connection carries a word there and back. */
async function works(client: ProxiedPod, ip: string): Promise<boolean> {
  const socket = await client.connect(ip, 8080);
  try {
    return (await exchange(socket, 'x')) === 'x';
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** Counts the connections that were closed for lack of descriptors. */
async function shed(proxy: ProxyProcess): Promise<number> {
  const line = /^weft_listener_early_denials_total\{.*reason="descriptor-limit".*\} (\d+)$/gm;
  const counts = (await proxy.text('/node-proxy/stats')).matchAll(line);
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}

/** Opens one connection of each kind beforehand; these must go on. */
async function keepOne(
  client: ProxiedPod,
  api: ProxiedPod,
  far: ProxiedPod,
): Promise<(word: string) => Promise<readonly (string | null)[]>> {
  const kept = {
    spliced: await client.connect(api.ip, 8080),
    out: await client.connect(far.ip, 8080),
    in: await far.connect(api.ip, 8080),
  };
  return (word) => Promise.all(Object.values(kept).map((socket) => exchange(socket, word)));
}

// spec: inpod.md §1
test('a proxy without descriptors says so, sheds what is new, keeps what it has, and recovers', async (t) => {
  const placement = { client: 'node-1', api: 'node-1', far: 'node-2' } as const;
  const mesh = await ProxyMesh.start(t, placement, MANY);
  const client = await mesh.addPod('client', 'node-1');
  const api = await mesh.addPod('api', 'node-1');
  const far = await mesh.addPod('far', 'node-2');
  for (const pod of [api, far]) {
    await pod.serve(8080, (socket) => {
      socket.on('error', () => undefined);
      socket.pipe(socket);
    });
  }
  const node = mesh.nodes['node-1'];
  const proxy = node.another(1, {}, node.netns, DESCRIPTORS);
  mesh.nodes['node-2'].start();
  await Promise.all([proxy.ready(), mesh.nodes['node-2'].ready()]);
  t.regex(
    await proxy.text('/node-proxy/stats'),
    new RegExp(`^process_max_fds ${DESCRIPTORS}$`, 'm'),
  );
  const kept = await keepOne(client, api, far);
  t.deepEqual(await kept('first'), ['first', 'first', 'first']);

  // More connections than there are descriptors for.
  const many = await crowd(client, api.ip, DESCRIPTORS);
  await until(() => proxy.logged('descriptors.exhausted').length > 0, { what: 'the log line' });
  await until(() => many.some((socket) => socket.destroyed), { what: 'connections to be shed' });
  t.is(proxy.child.exitCode, null);
  t.true((await shed(proxy)) > 0);
  t.deepEqual(await kept('still'), ['still', 'still', 'still']);
  for (const socket of many) socket.destroy();
  await until(() => works(client, api.ip), { what: 'new connections to be made again' });
  // A later connection tells the end, because the first one may still find half of the descriptors in use.
  const told = async (): Promise<boolean> =>
    (await works(client, api.ip)) && proxy.logged('descriptors.available').length > 0;
  await until(told, { what: 'the end of it' });

  // DNS clients do not get the last descriptors.
  const pid = proxy.child.pid ?? 0;
  const before = await shed(proxy);
  const resolvers: Socket[] = [];
  // Open them again, because silent connections are closed after a while.
  const ask = async (): Promise<boolean> => {
    const asking = [client, api].map((pod) => crowd(pod, '127.0.0.1', 256, 15_053));
    resolvers.push(...(await Promise.all(asking)).flat());
    return (await shed(proxy)) > before;
  };
  await until(ask, { what: 'some to be shed' });
  for (const socket of resolvers) socket.destroy();

  // Lower the limit to the descriptors in use, so that none is left for any purpose.
  const limitTo = (count: number): Buffer =>
    execFileSync('prlimit', ['--pid', String(pid), `--nofile=${count}:${DESCRIPTORS}`]);
  limitTo(Math.max(...readdirSync(`/proc/${pid}/fd`).map(Number)) + 1);
  const last = await crowd(client, api.ip, 100);
  const [used, startedMs] = [ticks(pid), performance.now()];
  await until(() => performance.now() - startedMs > 1_000, { what: 'a second to pass' });
  // The process neither spins nor ends.
  const share = ((ticks(pid) - used) * 10) / (performance.now() - startedMs);
  t.true(share < 0.9, `it used ${share} of a processor`);
  t.deepEqual(await kept('yet'), ['yet', 'yet', 'yet']);
  // It does not spin when one descriptor is returned either.
  limitTo(1);
  t.deepEqual(await kept('even so'), ['even so', 'even so', 'even so']);
  limitTo(DESCRIPTORS);
  for (const socket of last) socket.destroy();
  await until(() => works(client, api.ip), { what: 'new connections to be made again' });
  t.is(proxy.child.exitCode, null);
});

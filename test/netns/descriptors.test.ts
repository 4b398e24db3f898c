/** A node proxy that has no descriptors left (docs/decisions/budgets.md). */
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import type { Socket } from 'node:net';
import { netnsTest as test } from '../support/netns-test.ts';
import { ProxyMesh, exchange } from '../support/proxy-kit.ts';
import type { ProxiedPod } from '../support/proxy-kit.ts';
import { until } from '../support/until.ts';

const DESCRIPTORS = 400;
const MANY = { WEFT_MAX_CONNECTIONS: '100000', WEFT_MAX_CONNECTIONS_PER_POD: '100000' };

/** Processor time a process has used, in hundredths of a second. */
function ticks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return Number(fields[11]) + Number(fields[12]);
}

/** So many connections, of which some are closed again. */
async function crowd(client: ProxiedPod, ip: string, count: number): Promise<Socket[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const socket = await client.connect(ip, 8080);
      socket.on('error', () => undefined);
      return socket.resume();
    }),
  );
}

/** A connection that carries a word there and back, or null. */
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

// spec: inpod.md §1
test('a proxy without descriptors says so, sheds what is new, keeps what it has, and recovers', async (t) => {
  const mesh = await ProxyMesh.start(t, { client: 'node-1', api: 'node-1' }, MANY);
  const client = await mesh.addPod('client', 'node-1');
  const api = await mesh.addPod('api', 'node-1');
  await api.serve(8080, (socket) => {
    socket.on('error', () => undefined);
    socket.pipe(socket);
  });
  const node = mesh.nodes['node-1'];
  const proxy = node.another(1, {}, node.netns, DESCRIPTORS);
  await proxy.ready();
  t.regex(
    await proxy.text('/node-proxy/stats'),
    new RegExp(`^process_max_fds ${DESCRIPTORS}$`, 'm'),
  );
  const kept = await client.connect(api.ip, 8080);
  t.is(await exchange(kept, 'first'), 'first');

  // More than there are descriptors for.
  const many = await crowd(client, api.ip, DESCRIPTORS);
  await until(() => proxy.logged('descriptors.exhausted').length > 0, { what: 'the log line' });
  await until(() => many.some((socket) => socket.destroyed), { what: 'connections to be shed' });
  t.is(proxy.child.exitCode, null);
  t.true((await proxy.text('/node-proxy/stats')).includes('reason="descriptor-limit"'));
  t.is(await exchange(kept, 'still'), 'still');
  for (const socket of many) socket.destroy();
  await until(() => works(client, api.ip), { what: 'new connections to be made again' });
  await until(() => proxy.logged('descriptors.available').length > 0, { what: 'the end of it' });

  // None at all, whoever asks: the limit falls to what is in use.
  const pid = proxy.child.pid ?? 0;
  const limitTo = (count: number): Buffer =>
    execFileSync('prlimit', ['--pid', String(pid), `--nofile=${count}:${DESCRIPTORS}`]);
  const used = readdirSync(`/proc/${pid}/fd`).map(Number);
  limitTo(Math.max(...used) + 1);
  for (const socket of await crowd(client, api.ip, 100)) t.teardown(() => socket.destroy());
  const [before, startedMs] = [ticks(pid), performance.now()];
  await until(() => performance.now() - startedMs > 1_000, { what: 'a second to pass' });
  // Neither in a loop nor gone.
  const share = ((ticks(pid) - before) * 10) / (performance.now() - startedMs);
  t.true(share < 0.9, `it used ${share} of a processor`);
  t.is(await exchange(kept, 'yet'), 'yet');
  limitTo(DESCRIPTORS);
  await until(() => works(client, api.ip), { what: 'new connections to be made again' });
  t.is(proxy.child.exitCode, null);
});

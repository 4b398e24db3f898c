/** Tests that the last bytes of a connection cross a slow network though its tunnel ends. */
import { once } from 'node:events';
import type { ExecutionContext } from 'ava';
import { serveHbone } from '../support/hbone-peer.ts';
import { TestMesh, listenerSettings } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { until } from '../support/until.ts';

const PEER = 'spiffe://cluster.local/ns/demo/sa/web';
const TOTAL = 256 * 1024;

interface Upload {
  readonly mesh: TestMesh;
  readonly client: TestPod;
  /** How the peer sees the stream end, and after how many bytes. */
  readonly ended: () => Promise<{ readonly how: 'end' | 'close'; readonly bytes: number }>;
}

/** Has a pod send {@link TOTAL} bytes and end, over a network that takes seconds for them. The peer ends its direction at once. */
async function upload(t: ExecutionContext, idleReleaseMs: number): Promise<Upload> {
  const http2 = { ...listenerSettings.http2, idleReleaseMs };
  const mesh = await TestMesh.start(t, { threads: 1, http2 });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web', {
    enrolled: false,
    workload: { tunnelProtocol: 'HBONE' },
  });
  let bytes = 0;
  const ends: ('end' | 'close')[] = [];
  await serveHbone(t, mesh, { pod: web, identity: PEER }, async (request) => {
    const stream = request.accept({});
    if (stream === null) return;
    const { duplex } = stream;
    duplex.end('x');
    duplex.on('data', (chunk: Buffer) => (bytes += chunk.length));
    for (const how of ['end', 'close'] as const) duplex.once(how, () => ends.push(how));
    await once(duplex, 'close');
  });
  const { netns } = client;
  await netns.exec('sysctl', '-qw', 'net.ipv4.tcp_wmem=4096 16384 16384');
  const slow = ['rate', '500kbit', 'burst', '32kb', 'latency', '5s'];
  await netns.exec('tc', 'qdisc', 'add', 'dev', 'eth0', 'root', 'tbf', ...slow);
  const socket = await client.connect(web.ip, 8080);
  socket.end(Buffer.alloc(TOTAL));
  socket.resume();
  const ended = async (): ReturnType<Upload['ended']> => {
    await until(() => ends.length > 0, { timeoutMs: 30_000, what: 'the end' });
    return { how: ends[0] ?? 'close', bytes };
  };
  return { mesh, client, ended };
}

test('an idle tunnel that is let go first sends what waits for a slow network', async (t) => {
  const { ended } = await upload(t, 20);
  t.deepEqual(await ended(), { how: 'end', bytes: TOTAL });
});

test('so does the tunnel of a pod that ends', async (t) => {
  const { mesh, client, ended } = await upload(t, 60_000);
  await mesh.accessLines(1);
  await mesh.stop(client, 'graceful', 20_000);
  t.deepEqual(await ended(), { how: 'end', bytes: TOTAL });
});

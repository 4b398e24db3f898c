import { once } from 'node:events';
import type { ExecutionContext } from 'ava';
import { NetnsHandle } from '../../lib/linux/netns-handle.ts';
import { listenTcp } from '../../lib/linux/sockets.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { OtlpReceiver } from '../support/otlp-receiver.ts';
import { ProxyMesh, exchange } from '../support/proxy-kit.ts';
import type { ProxiedPod, ProxyNode } from '../support/proxy-kit.ts';
import { until } from '../support/until.ts';

const PORT = 4_318;
const ENVIRONMENT = {
  OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${PORT}`,
  OTEL_METRIC_EXPORT_INTERVAL: '1000',
  OTEL_BSP_SCHEDULE_DELAY: '100',
  OTEL_BLRP_SCHEDULE_DELAY: '100',
  OTEL_BLRP_MAX_QUEUE_SIZE: '8',
  OTEL_BLRP_MAX_EXPORT_BATCH_SIZE: '4',
};

/** Opens a socket that listens on the collector's port in the node's network. */
function collectorFd(t: ExecutionContext, node: ProxyNode): number {
  const handle = NetnsHandle.open(node.netns.path);
  t.teardown(() => handle.release());
  const socket = { address: '127.0.0.1', port: PORT, mark: 0, reusePort: false } as const;
  return listenTcp({ netnsFd: handle.fd, ...socket, transparent: 'off' }).fd;
}

async function talk(client: ProxiedPod, to: ProxiedPod): Promise<void> {
  const socket = await client.connect(to.ip, 8080);
  const closed = once(socket, 'close');
  await exchange(socket, 'hello');
  socket.end();
  await closed;
}

test('connections become joined spans and lines, and a collector that is gone holds up nothing', async (t) => {
  const mesh = await ProxyMesh.start(t, { client: 'node-1', api: 'node-2' }, ENVIRONMENT);
  const [one, two] = [mesh.nodes['node-1'], mesh.nodes['node-2']];
  const near = await OtlpReceiver.start(t, { fd: collectorFd(t, one) });
  const far = await OtlpReceiver.start(t, { fd: collectorFd(t, two) });
  const client = await mesh.addPod('client', 'node-1');
  const api = await mesh.addPod('api', 'node-2');
  await api.serve(8080, (socket) => socket.pipe(socket));
  await mesh.startProxies();
  await talk(client, api);

  await t.notThrowsAsync(spansJoin(t, near, far));
  await until(() => near.logs.length > 0, { what: 'the access line' });
  const [outbound] = near.spans;
  t.like(near.logs, [
    {
      body: 'connection complete',
      severity: 'INFO',
      traceId: outbound?.traceId,
      spanId: outbound?.spanId,
    },
  ]);
  t.like(near.logs[0]?.attributes, {
    'src.workload': 'client',
    'dst.workload': 'api',
    direction: 'outbound',
    bytes_sent: 5,
    bytes_recv: 5,
  });
  t.like(near.logs[0]?.resource, {
    'service.name': 'weft-node-proxy',
    'k8s.node.name': 'node-1',
  });
  const opened = await until(
    () => near.metric('istio_tcp_connections_opened_total', { reporter: 'source' }),
    { what: 'the metrics of the threads' },
  );
  t.like(opened, { kind: 'sum', value: 1, scope: 'weft/node-proxy' });
  t.is(opened.attributes['destination_workload'], 'api');

  await survivesOutage(t, { one, near, client, api });

  // A failed connection is an error in both signals, and the process sends the rest when it ends.
  const before = near.logs.length;
  const refused = await client.connect(api.ip, 9);
  await until(() => refused.destroyed, { what: 'the refusal' });
  const ended = once(one.process, 'exit');
  one.process.kill('SIGTERM');
  t.deepEqual(await ended, [0, null]);
  t.true(near.logs.length > before);
  t.true(near.logs.some(({ severity }) => severity === 'ERROR'));
  t.deepEqual(one.logged('host.leftover-handles'), []);
});

/** Checks that both spans form one trace, with the inbound span as the child of the outbound one. */
async function spansJoin(
  t: ExecutionContext,
  near: OtlpReceiver,
  far: OtlpReceiver,
): Promise<void> {
  const outbound = await until(() => near.spans[0], { what: 'the outbound span' });
  const inbound = await until(() => far.spans[0], { what: 'the inbound span' });
  t.is(inbound.traceId, outbound.traceId);
  t.is(inbound.parentSpanId, outbound.spanId);
  t.is(outbound.parentSpanId, '');
  t.deepEqual([outbound.kind, inbound.kind], [3, 2], 'client and server');
  t.is(outbound.name, 'api:8080');
  t.deepEqual(outbound.events, ['understood', 'connected', 'first byte']);
  t.deepEqual(inbound.events, ['understood', 'admitted', 'connected', 'first byte']);
  t.like(inbound.attributes, {
    'weft.protocol': 'HBONE',
    'weft.tunnel': outbound.attributes['weft.tunnel'],
    'src.identity': 'spiffe://cluster.local/ns/demo/sa/client',
  });
  t.true(inbound.startMs >= outbound.startMs - 1 && inbound.endMs >= inbound.startMs);
}

async function survivesOutage(
  t: ExecutionContext,
  {
    one,
    near,
    client,
    api,
  }: {
    readonly one: ProxyNode;
    readonly near: OtlpReceiver;
    readonly client: ProxiedPod;
    readonly api: ProxiedPod;
  },
): Promise<void> {
  await near.stop();
  for (let index = 0; index < 20; index += 1) await talk(client, api);
  const counter = async (name: string): Promise<number> => {
    const text = await one.netns.exec('curl', '-s', 'http://127.0.0.1:15020/metrics');
    return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);
  };
  const dropped = 'weft_otlp_items_dropped_total{signal="logs",reason="queue-full"}';
  const depth = 'weft_otlp_queue_items{signal="logs"}';
  const escaped = (text: string): string => text.replaceAll(/[{}]/g, String.raw`\$&`);
  await until(async () => (await counter(escaped(dropped))) === 12, {
    what: '20 lines but 8 dropped',
  });
  t.is(await counter(escaped(depth)), 8, 'the bound holds');
  t.is(one.logged('otlp.items-dropped').length, 1);

  const before = near.logs.length;
  await near.listen({ fd: collectorFd(t, one) });
  await until(() => near.logs.length >= before + 8, { what: 'the lines that were kept' });
  await talk(client, api);
  await until(() => near.logs.length >= before + 9, { what: 'lines to flow again' });
}

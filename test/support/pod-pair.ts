/** Two pods of one node, and checks of the bytes that passed between them. */
import type { ExecutionContext } from 'ava';
import { TestMesh } from './listener-kit.ts';
import type { TestPod } from './listener-kit.ts';
import { ask, echo } from './tcp-talk.ts';
import { until } from './until.ts';

/** Identity of the pod `client`. */
export const CLIENT = 'spiffe://cluster.local/ns/demo/sa/client';
/** Identity of the pod `web`. */
export const WEB = 'spiffe://cluster.local/ns/demo/sa/web';

/** A mesh with a client pod and a server pod. */
export interface PodPair {
  readonly mesh: TestMesh;
  readonly client: TestPod;
  readonly web: TestPod;
}

/** Makes a mesh with the client on the first thread and the server on the last. */
export async function podPair(
  t: ExecutionContext,
  options: Parameters<typeof TestMesh.start>[1] = {},
  web: Parameters<TestMesh['addPod']>[1] = {},
): Promise<PodPair> {
  const mesh = await TestMesh.start(t, options);
  return {
    mesh,
    client: await mesh.addPod('client', { thread: 0 }),
    web: await mesh.addPod('web', { thread: (options.threads ?? 2) - 1, ...web }),
  };
}

/**
 * Sends six bytes, looks at the live connection, then completes eleven bytes each way. Checks that both ends list the
 * connection, that the application sees the client's address, and that access lines and counters of both ends agree on
 * bytes and identities.
 */
export async function toldByBothEnds(
  t: ExecutionContext,
  { mesh, client, web }: PodPair,
  family: 'ip' | 'ip6',
) {
  const peers: (string | undefined)[] = [];
  await web.serve(8080, (socket) => {
    peers.push(socket.remoteAddress);
    echo(socket);
  });
  const socket = await client.connect(web[family], 8080);
  socket.write('hello ');
  const live = await until(
    async () => {
      const records = await mesh.connections();
      return records.length === 2 && records.every((record) => record.bytesSent === 6)
        ? records
        : null;
    },
    { what: 'both ends to list the connection' },
  );
  t.is(await ask(socket, 'world'), 'hello world');
  t.is(peers[0]?.replace('::ffff:', ''), client[family]);
  const lines = await mesh.accessLines(2);
  for (const line of lines) {
    t.is(line['src.identity'], CLIENT);
    t.is(line['dst.identity'], WEB);
    t.is(line['src.workload'], 'client');
    t.is(line['dst.workload'], 'web');
    t.is(line['bytes_sent'], 11);
    t.is(line['bytes_recv'], 11);
    t.false('error' in line);
  }
  const mutual = { connection_security_policy: 'mutual_tls' };
  for (const reporter of ['source', 'destination']) {
    t.is(await mesh.metric('istio_tcp_connections_opened_total', { ...mutual, reporter }), 1);
    t.is(await mesh.metric('istio_tcp_connections_closed_total', { ...mutual, reporter }), 1);
    t.is(await mesh.metric('istio_tcp_received_bytes_total', { ...mutual, reporter }), 11);
  }
  t.is(await mesh.metric('istio_tcp_connections_failed_total'), 0);
  return { live, lines };
}

/** A client of the Kubernetes API before a server that answers as the test says. */
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { KubernetesClient } from '../../lib/kubernetes/client.ts';
import { createTunnelPki } from './tunnel-pki.ts';

/** Returns a client of such a server; both end with the test. */
export async function clientOf(
  t: ExecutionContext,
  answer: RequestListener,
): Promise<KubernetesClient> {
  const pki = await createTunnelPki();
  const server = createServer(await pki.issueLocal(), answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = new KubernetesClient(
    {
      server: new URL(`https://127.0.0.1:${port}`),
      serverName: null,
      ca: { kind: 'text', text: pki.rootPem },
      token: null,
      client: null,
      namespace: null,
    },
    { clock: systemClock, userAgent: 'test' },
  );
  t.teardown(() => {
    client.close();
    server.closeAllConnections();
    server.close();
  });
  return client;
}

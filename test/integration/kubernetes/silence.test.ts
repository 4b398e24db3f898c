/** The client of the Kubernetes API before a server that hangs. A proxy in front of a real one would hide which bytes it held back. */
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { listItems } from '../../../lib/kubernetes/json-stream.ts';
import { createTunnelPki } from '../../support/tunnel-pki.ts';

/** Short, so that the test waits little; the length of the wait decides nothing. */
const SILENCE_MS = 100;

async function clientOf(t: ExecutionContext, answer: RequestListener): Promise<KubernetesClient> {
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

test('an answer that stands still in the middle is cut and asked for again', async (t) => {
  let asked = 0;
  const client = await clientOf(t, (_, response) => {
    asked += 1;
    response.write('{"kind":');
    if (asked === 2) response.end('"Pod"}');
  });
  const request = client.request({ method: 'GET', path: '/half', silenceMs: SILENCE_MS });
  t.deepEqual(await request, { kind: 'Pod' });
  t.is(asked, 2);
});

test('a page of a list that stands still ends its reader', async (t) => {
  const client = await clientOf(t, (_, response) => {
    response.write('{"metadata":{},"items":[{"a":1},');
  });
  const items = listItems(await client.stream({ path: '/page', silenceMs: SILENCE_MS }), 'pods');
  t.deepEqual((await items.next()).value, { a: 1 });
  await t.throwsAsync(items.next(), { message: `nothing came for ${SILENCE_MS} ms` });
});

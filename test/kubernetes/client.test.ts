/** The client against a real API server. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { rm } from 'node:fs/promises';
import { systemClock } from '../../lib/clock/clock.ts';
import { KubernetesClient } from '../../lib/kubernetes/client.ts';
import { findConnection, readKubeconfig } from '../../lib/kubernetes/connection.ts';
import { ifPresent } from '../../lib/kubernetes/status.ts';
import { WriteQueue } from '../../lib/kubernetes/write-queue.ts';
import { keptLog } from '../support/actor-context.ts';
import { makeScratch } from '../support/leftovers.ts';
import { until } from '../support/until.ts';
import { kubernetesSuite } from './support/suite.ts';

await kubernetesSuite('client', (test) => {
  test('tells failures by code', async (t, cluster) => {
    const namespace = await cluster.namespace('client');
    const path = `/api/v1/namespaces/${namespace}/configmaps`;
    t.is(await ifPresent(cluster.admin.get(`${path}/none`)), null);
    const body = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'one' } };
    await cluster.admin.create(path, body);
    await t.throwsAsync(cluster.admin.create(path, body), { code: 'KUBERNETES_CONFLICT' });
    await t.throwsAsync(cluster.admin.create(path, { ...body, data: 7 }), {
      code: 'KUBERNETES_INVALID',
    });
    const nobody = cluster.client({ token: await cluster.token(namespace, 'nobody') });
    const refused = await t.throwsAsync(nobody.get(path), { code: 'KUBERNETES_REFUSED' });
    t.regex(refused?.message ?? '', /cannot list resource "configmaps"/);
    const stranger = cluster.client({ token: 'no token' });
    await t.throwsAsync(stranger.get(path), { code: 'KUBERNETES_REFUSED' });
  });

  test('reads a token again when the API server refuses it', async (t, cluster) => {
    const namespace = await cluster.namespace('client');
    const folder = await makeScratch('account');
    t.teardown(() => rm(folder, { recursive: true, force: true }));
    await writeFile(join(folder, 'namespace'), `${namespace}\n`);
    await writeFile(join(folder, 'ca.crt'), cluster.server.caPem);
    await writeFile(join(folder, 'token'), cluster.server.adminToken);
    const { hostname, port } = new URL(cluster.server.url);
    const connection = await findConnection({
      kubeconfig: null,
      serviceHost: hostname,
      servicePort: Number(port),
      accountDir: folder,
    });
    const client = new KubernetesClient(connection, { clock: systemClock, userAgent: 'test' });
    t.teardown(() => client.close());
    t.is(client.namespace, namespace);
    await client.get(`/api/v1/namespaces/${namespace}`);
    await writeFile(join(folder, 'token'), 'no longer');
    await client.get(`/api/v1/namespaces/${namespace}`);
    t.pass('a good token is not read for every request');
    const other = new KubernetesClient(connection, { clock: systemClock, userAgent: 'test' });
    t.teardown(() => other.close());
    await t.throwsAsync(other.get('/api/v1/namespaces'), { code: 'KUBERNETES_REFUSED' });
    await writeFile(join(folder, 'token'), `${cluster.server.adminToken}\n`);
    await other.get('/api/v1/namespaces');
  });

  test('refuses a server whose certificate has another root', async (t, cluster) => {
    const client = new KubernetesClient(
      { ...cluster.connection(), ca: null },
      { clock: systemClock, userAgent: 'test' },
    );
    t.teardown(() => client.close());
    const request = client.request({ method: 'GET', path: '/version', attempts: 1 });
    await t.throwsAsync(request, { code: 'KUBERNETES_UNAVAILABLE', message: /certificate/ });
  });

  test('a kubeconfig with unsupported credentials is refused by field', async (t, cluster) => {
    const path = await cluster.kubeconfig();
    const connection = await readKubeconfig(path);
    t.is(connection.server.href, new URL(cluster.server.url).href);
    const text = JSON.stringify({
      'current-context': 'a',
      clusters: [{ name: 'a', cluster: { server: 'https://localhost' } }],
      contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }],
      users: [{ name: 'a', user: { exec: { command: 'aws' } } }],
    });
    await writeFile(path, text);
    await t.throwsAsync(readKubeconfig(path), {
      code: 'CONFIG_UNSUPPORTED',
      message: /user\.exec/,
    });
    await writeFile(path, text.replace('https://localhost', 'http://localhost'));
    await t.throwsAsync(readKubeconfig(path), {
      code: 'CONFIG_INVALID',
      message: /cluster\.server: must be an https URL/,
    });
  });

  test('a queued write reaches an API server that was away, in its latest form', async (t, cluster) => {
    const namespace = await cluster.namespace('client');
    const via = await cluster.gateway();
    const client = cluster.client({ via });
    const { log } = keptLog('test');
    const queue = new WriteQueue({ clock: systemClock, log });
    t.teardown(() => queue.close());
    const path = `/api/v1/namespaces/${namespace}/configmaps/written`;
    const write =
      (value: string) =>
      async (signal: AbortSignal): Promise<void> => {
        const body = {
          apiVersion: 'v1',
          kind: 'ConfigMap',
          metadata: { name: 'written' },
          data: { value },
        };
        await client.apply(path, body, { fieldManager: 'test', signal });
      };
    via.close();
    for (const value of ['1', '2', '3']) queue.offer('written', write(value));
    t.is(queue.size, 1);
    via.restore();
    await until(() => queue.size === 0, { what: 'the queue is empty' });
    const { data } = (await cluster.admin.get(path)) as {
      readonly data: { readonly value: string };
    };
    t.is(data.value, '3');
  });
});

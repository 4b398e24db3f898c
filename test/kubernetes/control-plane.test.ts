/** The control plane follows a real API server. */
import { status } from '@grpc/grpc-js';
import type { ServiceError } from '@grpc/grpc-js';
import { ADDRESS_TYPE } from '../../lib/xds/type-urls.ts';
import { openTestStream } from '../support/delta-test-client.ts';
import { until } from '../support/until.ts';
import type { TestObject } from './support/cluster.ts';
import { pod, service } from './support/objects.ts';
import { startControlPlane } from './support/control-plane.ts';
import { kubernetesSuite } from './support/suite.ts';

/** A small application: a service with two pods, a policy, an external host. */
function application(namespace: string): TestObject[] {
  return [
    service(namespace, 'web', { selector: { app: 'web' } }),
    pod(namespace, 'web-1', { ip: '10.244.1.1', labels: { app: 'web' } }),
    pod(namespace, 'web-2', { ip: '10.244.1.2', labels: { app: 'web' }, ready: false }),
    {
      apiVersion: 'networking.istio.io/v1',
      kind: 'ServiceEntry',
      metadata: { name: 'outside', namespace },
      spec: {
        hosts: [`outside.${namespace}.example.com`],
        addresses: ['192.0.2.10'],
        location: 'MESH_EXTERNAL',
        resolution: 'STATIC',
        ports: [{ number: 443, name: 'tls', protocol: 'TLS' }],
        endpoints: [{ address: '192.0.2.20' }],
      },
    },
    {
      apiVersion: 'security.istio.io/v1',
      kind: 'AuthorizationPolicy',
      metadata: { name: 'web', namespace },
      spec: {
        selector: { matchLabels: { app: 'web' } },
        rules: [{ from: [{ source: { principals: ['cluster.local/ns/other/sa/client'] } }] }],
      },
    },
    {
      apiVersion: 'security.istio.io/v1',
      kind: 'PeerAuthentication',
      metadata: { name: 'strict', namespace },
      spec: { mtls: { mode: 'STRICT' } },
    },
  ];
}

await kubernetesSuite('control-plane', (test) => {
  test('serves the objects of the API server, and their changes', async (t, cluster) => {
    const namespace = await cluster.namespace('app');
    const objects = application(namespace);
    await cluster.apply(...objects);
    const plane = await startControlPlane(t, cluster, { rootNamespace: namespace });
    await plane.ready();
    const first = await plane.addresses(namespace);
    t.deepEqual(
      first.map(({ name }) => name),
      [
        `Kubernetes//Pod/${namespace}/web-1`,
        `Kubernetes//Pod/${namespace}/web-2`,
        `Kubernetes/networking.istio.io/ServiceEntry/${namespace}/outside/192.0.2.20`,
        `${namespace}/outside.${namespace}.example.com`,
        `${namespace}/web.${namespace}.svc.cluster.local`,
      ],
    );
    await cluster.delete(pod(namespace, 'web-1', { ip: '10.244.1.1' }));
    await cluster.apply(pod(namespace, 'web-3', { ip: '10.244.1.3', labels: { app: 'web' } }));
    await plane.addressesWhen(namespace, (addresses) => {
      const names = addresses.map(({ name }) => name).join();
      return names.includes('/web-3') && !names.includes('/web-1');
    });
  });

  test('serves nobody before it has every object, and withdraws nothing while the API server is away', async (t, cluster) => {
    const namespace = await cluster.namespace('away');
    await cluster.apply(...application(namespace));
    const via = await cluster.gateway();
    via.close();
    const plane = await startControlPlane(t, cluster, { rootNamespace: namespace, via });
    const { hosted } = plane;
    await until(() => hosted.lines.some(({ message }) => message === 'kubernetes.source-failed'), {
      what: 'the API server is missed',
    });
    t.true(hosted.context.readiness.pending().includes('objects'));
    t.is(plane.actor.port, null);
    // Half synced: the server answers some requests, and stops in the middle of its answers.
    via.restore();
    via.slow(20);
    await until(() => via.opened > 3, { what: 'it connects' });
    via.stall();
    t.is(plane.actor.port, null, 'it does not serve a part of the mesh');
    via.restore();
    await plane.ready();
    const before = await plane.addresses(namespace);
    t.is(before.length, 5);
    via.close();
    await until(
      async () => {
        const { sources } = (await plane.page('/sources')) as {
          readonly sources: readonly { readonly problem: string | null }[];
        };
        return sources.every(({ problem }) => problem !== null);
      },
      { what: 'every watch has failed' },
    );
    await cluster.delete(pod(namespace, 'web-1', { ip: '10.244.1.1' }));
    t.deepEqual(await plane.addresses(namespace), before);
    via.restore();
    await plane.addressesWhen(namespace, (addresses) => addresses.length === 4);
  });

  test('an API server without objects gives an empty mesh', async (t, cluster) => {
    const namespace = await cluster.namespace('empty');
    const plane = await startControlPlane(t, cluster, { rootNamespace: namespace });
    await plane.ready();
    t.deepEqual(await plane.addresses(namespace), []);
    const { sources } = (await plane.page('/sources')) as {
      readonly sources: readonly { readonly state: string }[];
    };
    t.true(sources.every(({ state }) => state === 'synced'));
  });

  test('serves the proxies of the nodes by tokens that the API server vouches for', async (t, cluster) => {
    const namespace = await cluster.namespace('streams');
    await cluster.apply(...application(namespace));
    const plane = await startControlPlane(t, cluster, { rootNamespace: namespace });
    await plane.ready();
    const proxy = pod(namespace, 'ztunnel-1', { ip: '10.244.1.9', account: 'ztunnel' });
    const [stored] = await cluster.apply(proxy);
    const bound = { name: 'ztunnel-1', uid: stored?.metadata.uid ?? '' };
    const audiences = ['istio-ca'];
    const good = await cluster.token(namespace, 'ztunnel', { audiences, pod: bound });
    const stream = openTestStream(t, plane.target(good));
    const node = { id: `ztunnel~10.244.1.9~ztunnel-1.${namespace}~${namespace}.svc.cluster.local` };
    stream.send({ typeUrl: ADDRESS_TYPE, node });
    const { resources } = await stream.response(ADDRESS_TYPE, 0);
    t.true(resources.some(({ name }) => name === `Kubernetes//Pod/${namespace}/web-1`));
    for (const [token, code] of [
      [await cluster.token(namespace, 'ztunnel', { audiences: ['other'] }), status.UNAUTHENTICATED],
      ['no token', status.UNAUTHENTICATED],
      [await cluster.token(namespace, 'default', { audiences }), status.PERMISSION_DENIED],
    ] as const) {
      const refused = openTestStream(t, plane.target(token));
      refused.send({ typeUrl: ADDRESS_TYPE, node });
      await until(() => refused.ended() !== null, { what: 'the stream is refused' });
      t.is((refused.ended() as ServiceError).code, code);
    }
  });
});

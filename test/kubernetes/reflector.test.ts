/** Lists and watches against a real API server. */
import { systemClock } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { KubernetesClient } from '../../lib/kubernetes/client.ts';
import { Reflector } from '../../lib/kubernetes/reflector.ts';
import type { ReflectorOptions } from '../../lib/kubernetes/reflection.ts';
import { resourcePath } from '../../lib/kubernetes/resource.ts';
import type { ResourceType } from '../../lib/kubernetes/resource.ts';
import { keptLog } from '../support/actor-context.ts';
import { until } from '../support/until.ts';
import { UNCACHED_RESOURCE } from './support/api-server.ts';
import type { Cluster } from './support/cluster.ts';
import { kubernetesSuite } from './support/suite.ts';
import type { ExecutionContext } from 'ava';

/** Waits at most a tenth of a second. */
const HASTY_CLOCK: Clock = {
  ...systemClock,
  sleep: (delayMs, signal) => systemClock.sleep(Math.min(delayMs, 100), signal),
};

const CONFIG_MAPS: ResourceType = {
  group: '',
  versions: ['v1'],
  plural: 'configmaps',
  namespaced: true,
};

const configMap = (namespace: string, name: string, value: string) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace },
  data: { value },
});
const template = (namespace: string, name: string, value: string) => ({
  apiVersion: 'v1',
  kind: 'PodTemplate',
  metadata: { name, namespace, labels: { value } },
  template: { spec: { containers: [{ name: 'main', image: 'main' }] } },
});

/** Follows a resource in one namespace and keeps what it is told. */
function follow(
  t: ExecutionContext,
  client: KubernetesClient,
  options: Pick<ReflectorOptions<string>, 'resource' | 'kind'> & { readonly namespace: string },
  clock = HASTY_CLOCK,
) {
  const { log, lines } = keptLog('test');
  const held = new Map<string, string>();
  const removed: string[] = [];
  const ways: string[] = [];
  const reflector = new Reflector<string>(
    {
      ...options,
      reduce: ({ data, metadata }) => {
        const { labels } = metadata as { readonly labels?: { readonly value?: string } };
        const { value } = (data ?? labels ?? {}) as { readonly value?: string };
        if (value === 'refused') throw new Error('no such value');
        return value ?? '';
      },
      sink: {
        keys: () => held.keys(),
        apply: (changes) => {
          for (const { key, object } of changes) {
            if (object !== null) held.set(key, object);
            else if (held.delete(key)) removed.push(key);
          }
        },
      },
    },
    {
      client,
      clock,
      log,
      metrics: {
        listed: (_resource, way) => ways.push(way),
        failed: () => {},
        objectRefused: () => {},
      },
    },
  );
  void reflector.run();
  t.teardown(() => reflector.close());
  const holds = (...values: readonly string[]): Promise<boolean> =>
    until(() => [...held.values()].toSorted().join() === values.join(), {
      what: `the objects are ${values.join()}`,
    });
  return { reflector, held, removed, ways, lines, holds };
}

async function fill(cluster: Cluster, namespace: string, count: number): Promise<void> {
  const names = Array.from({ length: count }, (_, index) => `many-${index}`);
  for (let start = 0; start < count; start += 50) {
    await Promise.all(
      names
        .slice(start, start + 50)
        .map((name) =>
          cluster.admin.create(
            resourcePath(UNCACHED_RESOURCE, { namespace }),
            template(namespace, name, 'many'),
          ),
        ),
    );
  }
}

await kubernetesSuite('reflector', (test) => {
  test('streams the list and follows changes', async (t, cluster) => {
    const namespace = await cluster.namespace('reflect');
    await cluster.apply(configMap(namespace, 'a', '1'), configMap(namespace, 'b', '2'));
    const seen = follow(t, cluster.client(), {
      resource: CONFIG_MAPS,
      kind: 'ConfigMap',
      namespace,
    });
    await seen.reflector.synced();
    t.deepEqual(Object.fromEntries(seen.held), {
      [`${namespace}/a`]: '1',
      [`${namespace}/b`]: '2',
    });
    await cluster.apply(configMap(namespace, 'a', '3'), configMap(namespace, 'c', '4'));
    await cluster.delete(configMap(namespace, 'b', ''));
    await seen.holds('3', '4');
    t.deepEqual(seen.ways, ['stream']);
  });

  test('goes on where it was after its connections broke', async (t, cluster) => {
    const namespace = await cluster.namespace('reflect');
    await cluster.apply(configMap(namespace, 'a', '1'), configMap(namespace, 'b', '1'));
    const via = await cluster.gateway();
    const seen = follow(t, cluster.client({ via }), {
      resource: CONFIG_MAPS,
      kind: 'ConfigMap',
      namespace,
    });
    await seen.reflector.synced();
    via.close();
    await until(() => seen.reflector.problem, { what: 'the loss is noticed' });
    await cluster.apply(configMap(namespace, 'a', '2'));
    await cluster.delete(configMap(namespace, 'b', ''));
    t.deepEqual([...seen.held.values()], ['1', '1'], 'nothing is withdrawn while it is away');
    via.restore();
    await seen.holds('2');
    t.is(seen.reflector.problem, null);
    t.deepEqual(seen.ways, ['stream'], 'the watch goes on without another list');
  });

  test('lists again when the history has expired, and withdraws only what is gone', async (t, cluster) => {
    const namespace = await cluster.namespace('reflect');
    for (const name of ['a', 'b', 'c']) await cluster.apply(template(namespace, name, name));
    const via = await cluster.gateway();
    const resource = UNCACHED_RESOURCE;
    const seen = follow(t, cluster.client({ via }), { resource, kind: 'PodTemplate', namespace });
    await seen.reflector.synced();
    via.close();
    await until(() => seen.reflector.problem, { what: 'the loss is noticed' });
    await cluster.delete(template(namespace, 'b', ''));
    await cluster.apply(template(namespace, 'd', 'd'));
    await cluster.compact();
    via.restore();
    await seen.holds('a', 'c', 'd');
    t.deepEqual(seen.removed, [`${namespace}/b`]);
    t.true(seen.lines.some(({ message }) => message === 'kubernetes.watch-expired'));
  });

  test('an empty list withdraws nothing before it has been empty for a minute', async (t, cluster) => {
    const namespace = await cluster.namespace('reflect');
    await cluster.apply(template(namespace, 'a', 'a'));
    const via = await cluster.gateway();
    const client = cluster.client({ via });
    const options = { resource: UNCACHED_RESOURCE, kind: 'PodTemplate', namespace };
    const seen = follow(t, client, options);
    // A minute of this clock takes less than a second.
    const quick = { ...HASTY_CLOCK, monotonic: () => systemClock.monotonic() * 100 };
    const patient = follow(t, client, options, quick);
    await Promise.all([seen, patient].map(({ reflector }) => reflector.synced()));
    via.close();
    await until(() => seen.reflector.problem !== null && patient.reflector.problem !== null, {
      what: 'the loss is noticed',
    });
    await cluster.delete(template(namespace, 'a', ''));
    await cluster.compact();
    via.restore();
    await until(() => /has become empty/.test(seen.reflector.problem ?? ''), {
      what: 'the empty list to be doubted',
    });
    t.deepEqual([...seen.held.values()], ['a']);
    await until(() => patient.held.size === 0, { what: 'the list to be believed' });
    t.is(patient.reflector.problem, null);
    t.true(patient.lines.some(({ problem }) => /has become empty/.test(String(problem))));
    t.deepEqual(seen.removed, []);
    await cluster.apply(template(namespace, 'b', 'b'));
    await seen.holds('b');
    t.deepEqual(seen.removed, [`${namespace}/a`]);
  });

  test('pages where lists are not streamed, and begins again when a continue token has expired', async (t, cluster) => {
    const namespace = await cluster.namespace('reflect');
    await fill(cluster, namespace, 1_100);
    const client = cluster.client();
    const stream = client.stream.bind(client);
    let compacted = false;
    client.stream = async (request) => {
      if (request.query?.['sendInitialEvents'] !== undefined) {
        throw new MeshError('KUBERNETES_INVALID', 'an API server that streams no lists');
      }
      if (!compacted && request.query?.['continue'] !== undefined) {
        compacted = true;
        await cluster.apply(template(namespace, 'late', 'late'));
        await cluster.compact();
      }
      return stream(request);
    };
    const resource = UNCACHED_RESOURCE;
    const seen = follow(t, client, { resource, kind: 'PodTemplate', namespace });
    await seen.reflector.synced();
    t.true(compacted);
    t.is(seen.held.size, 1_101);
    t.deepEqual(seen.ways, ['pages']);
    t.deepEqual(seen.removed, []);
    t.true(seen.lines.some(({ message }) => message === 'kubernetes.list-expired'));
  });

  test('keeps an object as it was when a later form of it is refused', async (t, cluster) => {
    const namespace = await cluster.namespace('reflect');
    await cluster.apply(configMap(namespace, 'a', '1'));
    const seen = follow(t, cluster.client(), {
      resource: CONFIG_MAPS,
      kind: 'ConfigMap',
      namespace,
    });
    await seen.reflector.synced();
    await cluster.apply(configMap(namespace, 'a', 'refused'), configMap(namespace, 'b', '2'));
    await seen.holds('1', '2');
    t.true(seen.lines.some(({ message }) => message === 'kubernetes.object-refused'));
  });

  test('a resource that comes later is found, and is empty until then', async (t, cluster) => {
    const namespace = await cluster.namespace('reflect');
    const plural = `things${namespace.replace('-', '')}`;
    const group = 'test.weft.example';
    const seen = follow(t, cluster.client(), {
      resource: { group, versions: ['v2', 'v1'], plural, namespaced: true },
      kind: 'Thing',
      namespace,
    });
    await seen.reflector.synced();
    t.is(seen.reflector.state, 'absent');
    const kind = `Thing${plural}`;
    await cluster.define({ group, plural, kind, version: 'v1' });
    await cluster.apply({
      apiVersion: `${group}/v1`,
      kind,
      metadata: { name: 'a', namespace, labels: { value: '1' } },
    });
    await seen.holds('1');
    t.is(seen.reflector.state, 'synced');
  });
});

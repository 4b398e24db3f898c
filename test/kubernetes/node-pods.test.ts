/** The pods of a node, asked for and followed at a real API server. */
import { randomBytes } from 'node:crypto';
import { systemClock } from '../../lib/clock/clock.ts';
import { KubernetesClient } from '../../lib/kubernetes/client.ts';
import { reflectorMetrics } from '../../lib/kubernetes/reflection.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import { KubernetesPods } from '../../services/node-agent/kubernetes/kubernetes-pods.ts';
import { keptLog } from '../support/actor-context.ts';
import { until } from '../support/until.ts';
import { pod } from './support/objects.ts';
import { kubernetesSuite } from './support/suite.ts';

/** Sends and returns single reads when it is told to; lists and watches go on. */
class HeldClient extends KubernetesClient {
  readonly send = Promise.withResolvers<void>();
  readonly answered = Promise.withResolvers<void>();
  readonly tell = Promise.withResolvers<void>();

  override async get(path: string): Promise<unknown> {
    await this.send.promise;
    const answer = await super.get(path);
    this.answered.resolve();
    await this.tell.promise;
    return answer;
  }
}

await kubernetesSuite('node-pods', (test) => {
  test('an answer about a pod that was deleted meanwhile brings no pod back', async (t, cluster) => {
    const node = `node-${randomBytes(4).toString('hex')}`;
    const namespace = await cluster.namespace('pods');
    const client = new HeldClient(cluster.connection(), { clock: systemClock, userAgent: 'test' });
    t.teardown(() => client.close());
    const pods = new KubernetesPods({
      client,
      clock: systemClock,
      log: keptLog('test').log,
      metrics: reflectorMetrics(new MetricRegistry()),
      node,
      supervise: (work) => void work.catch((error: unknown) => t.fail(String(error))),
      onRedirection: () => {},
    });
    t.teardown(() => pods.close());
    const told: (readonly string[])[] = [];
    await pods.start((set) => told.push([...set.pods.keys(), ...set.unreadable]));
    await until(() => told.length > 0, { what: 'the first set' });
    const network = { netns: '/proc/1/ns/net', addresses: ['10.9.0.2'] };
    const found = pods.find(namespace, 'web', network);
    const [stored] = await cluster.apply(pod(namespace, 'web', { ip: '10.9.0.2', node }));
    if (stored === undefined) throw new Error('the pod is stored');
    const { uid } = stored.metadata;
    client.send.resolve();
    await client.answered.promise;
    await until(() => pods.byUid(uid) !== null, { what: 'the watch tells the pod' });
    await cluster.delete(stored);
    await until(() => pods.byUid(uid) === null, { what: 'the watch tells that it is gone' });
    client.tell.resolve();
    await t.throwsAsync(found, { code: 'KUBERNETES_UNAVAILABLE', message: /was deleted while/ });
    t.is(pods.byUid(uid), null);
    t.is(await pods.find(namespace, 'web', network), null, 'a later question has its own answer');
  });
});

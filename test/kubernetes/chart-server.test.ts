/** The objects of the Helm chart, and a real API server that takes and applies them. */
import ava from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { KubernetesClient } from '../../lib/kubernetes/client.ts';
import { podEnvironments } from '../support/pod-environment.ts';
import { until } from '../support/until.ts';
import type { TestObject } from './support/cluster.ts';
import { helmProgram, objectsOf, renderChart } from './support/helm.ts';
import { pod } from './support/objects.ts';
import { underRole } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

const CENTRAL = { usersSecret: 'users', tlsSecret: 'tls' };
/** Every form that the values give the chart. */
const FORMS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  'the default': {},
  compact: { profile: 'compact' },
  'an external Redis': { redis: { mode: 'external', url: 'rediss://redis:6379', ...CENTRAL } },
  'a shared Redis': { redis: { mode: 'shared', ...CENTRAL, storageClass: 'fast' } },
  'in the place of ztunnel': { replaceZtunnel: { enabled: true } },
  'all that is optional': {
    image: { digest: `sha256:${'0'.repeat(64)}`, pullSecrets: ['registry'] },
    meshConfig: { discoverySelectors: [{ matchLabels: { mesh: 'on' } }] },
    otlp: {
      endpoint: 'http://collector:4318',
      settings: { OTEL_TRACES_SAMPLER: 'traceidratio' },
      secret: 'otlp',
    },
    prometheus: { rules: true },
    grafana: { dashboards: true },
  },
};

const helm = await helmProgram();
if ('missing' in helm) {
  process.stderr.write(`\nSKIPPED chart-server: ${helm.missing}\n`);
  ava.skip(`chart-server: ${helm.missing}`, (t) => t.pass());
} else {
  const render = (namespace: string, values = {}): Promise<string> =>
    renderChart(helm.path, namespace, values);
  await kubernetesSuite('chart-server', (test) => {
    for (const [name, values] of Object.entries(FORMS)) {
      test(`${name}: the API server takes every object, and every role its variables`, async (t, cluster) => {
        const namespace = await cluster.namespace('chart');
        const objects = objectsOf(await render(namespace, values));
        t.true(objects.length > 10);
        for (const object of objects) await cluster.judge(object);
        const { faults, roles } = await podEnvironments(objects);
        t.deepEqual(faults, []);
        t.true(roles.length >= 2);
      });
    }

    test('an agent writes about the pods of its own node alone', async (t, cluster) => {
      const namespace = await cluster.namespace('chart');
      const { token } = await underRole(cluster, 'weft-node-agent', { namespace });
      const rendered = objectsOf(await render(namespace));
      const policies = rendered.filter(({ kind }) => kind.startsWith('ValidatingAdmissionPolicy'));
      t.is(policies.length, 2);
      await cluster.apply(...policies);
      const cleaner = cluster.client();
      t.teardown(async () => {
        for (const policy of policies) await cleaner.delete(await cluster.path(policy));
      });
      const [agent, near, far] = await cluster.apply(
        pod(namespace, 'agent', { ip: '10.1.0.1', account: 'weft-node-agent', node: 'node-1' }),
        pod(namespace, 'near', { ip: '10.1.0.2', node: 'node-1' }),
        pod(namespace, 'far', { ip: '10.1.0.3', node: 'node-2' }),
      );
      const bound = await cluster.token(namespace, 'weft-node-agent', {
        pod: present(agent, 'the pod is stored').metadata,
      });
      const onNode = cluster.client({ token: bound });
      const annotate = async (client: KubernetesClient, on?: TestObject): Promise<void> => {
        await client.request({
          method: 'PATCH',
          path: await cluster.path(present(on, 'the pod is stored'), 'status'),
          contentType: 'application/merge-patch+json',
          body: { metadata: { annotations: { 'ambient.istio.io/redirection': 'pending' } } },
        });
      };
      const tell = (host: string): Promise<unknown> =>
        onNode.create(`/api/v1/namespaces/${namespace}/events`, {
          apiVersion: 'v1',
          kind: 'Event',
          metadata: { generateName: 'near.', namespace },
          involvedObject: { apiVersion: 'v1', kind: 'Pod', namespace, name: 'near' },
          source: { component: 'weft-node-agent', host },
        });
      // The policy is in force a moment after it was stored.
      await until(
        () =>
          annotate(onNode, far).then(
            () => false,
            () => true,
          ),
        {
          what: 'the policy is in force',
        },
      );
      const refusal = async (write: Promise<unknown>): Promise<string> =>
        errorText(await t.throwsAsync(write));
      t.regex(await refusal(annotate(onNode, far)), /agent of node-1 may not write .* of node-2/);
      await annotate(onNode, near);
      t.regex(await refusal(tell('node-2')), /agent of node-1 may not write .* of node-2/);
      await tell('node-1');
      const unbound = cluster.client({ token });
      t.regex(await refusal(annotate(unbound, near)), /agent of no node may not write/);
    });
  });
}

/** The admission webhook, asked by a real API server. */
import { errorText } from '../../lib/errors/mesh-error.ts';
import { ownPort } from '../support/ports.ts';
import { until } from '../support/until.ts';
import { startControlPlane } from './support/control-plane.ts';
import type { TestObject } from './support/cluster.ts';
import { kubernetesSuite } from './support/suite.ts';

const policy = (namespace: string, name: string, port: string): TestObject => ({
  apiVersion: 'security.istio.io/v1',
  kind: 'AuthorizationPolicy',
  metadata: { name, namespace },
  spec: { action: 'DENY', rules: [{ to: [{ operation: { ports: [port] } }] }] },
});

await kubernetesSuite('webhook', (test) => {
  test('refuses what cannot be enforced, with the field and the reason', async (t, cluster) => {
    const namespace = await cluster.namespace('webhook', { 'test.weft/webhook': 'on' });
    const port = await ownPort();
    const name = `weft-validator-${namespace}`;
    const path = '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations';
    await cluster.admin.create(path, {
      apiVersion: 'admissionregistration.k8s.io/v1',
      kind: 'ValidatingWebhookConfiguration',
      metadata: { name },
      webhooks: [
        {
          name: 'validation.weft.io',
          clientConfig: { url: `https://127.0.0.1:${port}/validate` },
          rules: [
            {
              apiGroups: ['security.istio.io', 'networking.istio.io'],
              apiVersions: ['*'],
              operations: ['CREATE', 'UPDATE'],
              resources: ['*'],
            },
          ],
          namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } },
          failurePolicy: 'Ignore',
          sideEffects: 'None',
          admissionReviewVersions: ['v1'],
        },
      ],
    });
    const cleaner = cluster.client();
    t.teardown(async () => {
      await cleaner.delete(`${path}/${name}`);
    });
    const plane = await startControlPlane(t, cluster, {
      rootNamespace: namespace,
      environment: { WEFT_CONTROL_PLANE_WEBHOOK_LISTEN: `127.0.0.1:${port}` },
    });
    await plane.ready();
    await until(
      async () => {
        const { webhooks } = (await cluster.admin.get(`${path}/${name}`)) as {
          readonly webhooks: readonly { readonly clientConfig: { readonly caBundle?: string } }[];
        };
        return webhooks[0]?.clientConfig.caBundle;
      },
      { what: 'the leader writes the roots' },
    );
    // The API server learns of the roots a moment later, and lets everything pass until then.
    const refused = await until(
      async () => {
        try {
          await cluster.apply(policy(namespace, 'bad', '70000'));
          await cluster.delete(policy(namespace, 'bad', '70000'));
          return null;
        } catch (error) {
          return errorText(error);
        }
      },
      { what: 'the webhook is asked' },
    );
    t.regex(
      refused,
      /admission webhook "validation\.weft\.io" denied the request: AuthorizationPolicy is invalid: spec\.rules\[0\]\.to\[0\]\.operation\.ports\[0\]: is not a port from 1 to 65535/,
    );
    await cluster.apply(policy(namespace, 'good', '8080'));
    t.regex(
      await plane.hosted.metrics(),
      /webhook_reviews_total\{[^}]*outcome="refused"[^}]*\} [1-9]/,
    );
    // Without the webhook, objects are let in, and the status tells what is wrong.
    await plane.hosted.stop();
    await cluster.apply(policy(namespace, 'bad', '70000'));
    t.pass();
  });
});

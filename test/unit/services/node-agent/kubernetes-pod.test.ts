import test from 'ava';
import { reducePod } from '../../../../services/node-agent/kubernetes/pod.ts';

const metadata = { uid: 'u-1', namespace: 'demo', name: 'web-1' };

test('a pod is reduced to the fields in use', (t) => {
  const pod = reducePod({
    metadata: {
      ...metadata,
      labels: { app: 'web' },
      annotations: {
        'ambient.istio.io/redirection': 'pending',
        'ambient.istio.io/dns-capture': 'true',
      },
    },
    spec: { serviceAccountName: 'web', hostNetwork: true, containers: [] },
    status: {
      phase: 'Running',
      startTime: '2026-11-23T10:00:00Z',
      podIP: '10.0.0.1',
      podIPs: [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }],
      containerStatuses: [{ containerID: 'containerd://a' }, {}],
    },
  });
  t.deepEqual(pod, {
    ...metadata,
    serviceAccount: 'web',
    labels: { app: 'web' },
    annotations: { 'ambient.istio.io/dns-capture': 'true' },
    redirection: 'pending',
    hostNetwork: true,
    addresses: ['10.0.0.1', 'fd00::1'],
    startedAtMs: Date.parse('2026-11-23T10:00:00Z'),
    ended: false,
    containers: 'containerd://a,',
  });
});

test('absent fields have their defaults, and a single address counts', (t) => {
  const bare = reducePod({ metadata, spec: {} });
  t.like(bare, { serviceAccount: 'default', hostNetwork: false, redirection: null, ended: false });
  t.deepEqual(bare.addresses, []);
  t.deepEqual(reducePod({ metadata, spec: {}, status: { podIP: '10.0.0.2' } }).addresses, [
    '10.0.0.2',
  ]);
  for (const phase of ['Succeeded', 'Failed']) {
    t.true(reducePod({ metadata, spec: {}, status: { phase } }).ended);
  }
});

test('what is no pod is refused with the wrong fields', (t) => {
  t.throws(() => reducePod({ metadata: { ...metadata, uid: '' }, spec: { hostNetwork: 'x' } }), {
    code: 'KUBERNETES_INVALID',
    message: /metadata\.uid.*spec\.hostNetwork/,
  });
});

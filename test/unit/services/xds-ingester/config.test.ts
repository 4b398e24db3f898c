import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { ingesterConfig } from '../../../../services/xds-ingester/config.ts';

const BASE = { REDIS_URL: 'unix:///r.sock' };

const address = (environment: Record<string, string>): string | null =>
  ingesterConfig.parse({ ...BASE, ...environment }).xds?.address ?? null;

test('the control plane by default, in a cluster, as given, and none', (t) => {
  t.is(address({}), 'https://localhost:15012');
  t.is(address({ KUBERNETES_SERVICE_HOST: '10.0.0.1' }), 'https://istiod.istio-system.svc:15012');
  t.is(address({ XDS_ADDRESS: 'cp.test:15012' }), 'cp.test:15012');
  t.is(address({ XDS_ADDRESS: '' }), null);
});

test('prefixed variables become headers and metadata', (t) => {
  const config = ingesterConfig.parse({
    ...BASE,
    XDS_HEADER_Extra: 'a',
    ISTIO_META_X: 'b',
    ISTIO_METAJSON_Y: '[1]',
  });
  t.deepEqual(config.xds?.headers, { extra: 'a' });
  t.deepEqual(config.node.metadata, { X: 'b' });
  t.deepEqual(config.node.jsonMetadata, { Y: [1] });
  t.true(Object.isFrozen(config.node));
  t.notThrows(() => structuredClone(config));
});

// spec: observability.md §6
test('the cluster is Kubernetes, or as said, first of all as metadata', (t) => {
  const cluster = (environment: Record<string, string>) =>
    ingesterConfig.parse({ ...BASE, ...environment }).xds?.clusterId;
  t.is(cluster({}), 'Kubernetes');
  t.is(cluster({ CLUSTER_ID: 'c1' }), 'c1');
  t.is(cluster({ CLUSTER_ID: 'c1', ISTIO_META_CLUSTER_ID: 'c2' }), 'c2');
});

test('problems are told together, on-demand discovery is refused', (t) => {
  const error = t.throws(
    () =>
      ingesterConfig.parse({
        ...BASE,
        XDS_ADDRESS: 'ftp://x',
        LOCAL_XDS: 'a',
        LOCAL_XDS_PATH: 'b',
        ISTIO_METAJSON_Y: '{',
      }),
    { instanceOf: MeshError },
  );
  t.is(error.code, 'CONFIG_INVALID');
  for (const part of [/must not both/, /must be https/, /ISTIO_METAJSON_Y/])
    t.regex(error.message, part);
  t.true(ingesterConfig.parse({ ...BASE, XDS_ON_DEMAND: 'true' }).onDemand);
  const refused = t.throws(
    () => ingesterConfig.parse({ ...BASE, XDS_ON_DEMAND: 'true', XDS_ADDRESS: '' }),
    { instanceOf: MeshError },
  );
  t.regex(refused.message, /XDS_ON_DEMAND needs a control plane/);
});

/** The effects of a MeshConfig: spec: istiod-ambient.md §1.1, spec: istiod-ambient.md §1.5, spec: istiod-ambient.md §1.7. */
import test from 'ava';
import { readMeshConfig } from '../../../../services/control-plane/mapping/mesh-config.ts';
import { TestMesh, namespace, podManifest } from '../../../support/mesh-objects.ts';

const ENTRY = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ext, namespace: demo}
spec: {hosts: [ext.example], resolution: DNS, ports: [{number: 80, name: http}]}
`;

function configure(mesh: TestMesh, text: string): void {
  mesh.map.configure(readMeshConfig('test', text).config);
}

test('fields without effect are listed, bad ones are named', (t) => {
  const { config, ignored } = readMeshConfig(
    'file',
    'trustDomain: td\nenableTracing: true\naccessLogFile: /dev/stdout\nlocalityLbSetting: {failover: []}\nserviceScopeConfigs: []\n',
  );
  t.is(config.trustDomain, 'td');
  t.deepEqual(ignored, [
    'accessLogFile',
    'enableTracing',
    'serviceScopeConfigs',
    'localityLbSetting.failover',
  ]);
  t.deepEqual(readMeshConfig('file', '').config, {});
  for (const [text, message] of [
    ['trustDomain: 7', /^file, trustDomain: /],
    ['rootNamespace: A_B', /^file, rootNamespace: /],
    ['discoverySelectors: [{matchLabels: {a: 1}}]', /^file, discoverySelectors.0.matchLabels.a: /],
    ['a: [', /^file: /],
    ['just text', /^file: /],
  ] as const) {
    t.throws(() => readMeshConfig('file', text), { code: 'CONFIG_INVALID', message });
  }
});

test('the trust domain is that of the workloads, and aliases count in policies', (t) => {
  const mesh = new TestMesh();
  mesh.apply(
    [
      podManifest('a'),
      `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: demo}
spec: {rules: [{from: [{source: {principals: [old.example/ns/x/sa/y, other.example/ns/x/sa/y, '*/sa/z']}}]}]}
`,
    ].join('---\n'),
  );
  const principals = (): unknown =>
    mesh
      .policy('demo/p')
      ?.rules[0]?.clauses[0]?.matches[0]?.principals.map((match) =>
        match.kind === 'presence' ? '*' : match.value,
      );
  t.is(mesh.pod('a')?.trustDomain, 'cluster.local');
  t.deepEqual(principals(), ['old.example/ns/x/sa/y', 'other.example/ns/x/sa/y', '/sa/z']);
  configure(mesh, 'trustDomain: new.example\ntrustDomainAliases: [old.example]\n');
  t.is(mesh.pod('a')?.trustDomain, 'new.example');
  t.deepEqual(principals(), [
    'old.example/ns/x/sa/y',
    'new.example/ns/x/sa/y',
    'other.example/ns/x/sa/y',
    '/sa/z',
  ]);
  mesh.map.configure(null);
  t.is(mesh.pod('a')?.trustDomain, 'cluster.local');
});

test('the root namespace is where policies hold for the whole mesh', (t) => {
  const mesh = new TestMesh();
  mesh.apply(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: other}
spec: {rules: [{}]}
`);
  t.is(mesh.policy('other/p')?.scope, 'NAMESPACE');
  configure(mesh, 'rootNamespace: other');
  t.is(mesh.policy('other/p')?.scope, 'GLOBAL');
});

test('discovery selectors leave namespaces out, but never the root namespace', (t) => {
  const mesh = new TestMesh();
  const policy = (ns: string): string => `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: ${ns}}
spec: {rules: [{}]}
`;
  mesh.apply([podManifest('a'), ENTRY, policy('demo'), policy('istio-system')].join('---\n'));
  configure(mesh, 'discoverySelectors: [{matchLabels: {mesh: "on"}}]');
  t.is(mesh.pod('a'), undefined);
  t.is(mesh.service('demo/ext.example'), undefined);
  t.deepEqual(mesh.policies(), ['istio-system/p']);
  mesh.apply(namespace('demo').replace('}', ', labels: {mesh: "on"}}'));
  t.truthy(mesh.pod('a'));
  t.truthy(mesh.service('demo/ext.example'));
  t.deepEqual(mesh.policies(), ['demo/p', 'istio-system/p']);
});

test('the mesh decides who sees entries that do not say it', (t) => {
  const mesh = new TestMesh();
  mesh.apply(ENTRY);
  t.is(mesh.service('demo/ext.example')?.visibility, 'PUBLIC');
  configure(mesh, "defaultServiceExportTo: ['.']");
  t.is(mesh.service('demo/ext.example')?.visibility, 'NAMESPACE');
  configure(mesh, "defaultServiceExportTo: ['~']");
  t.is(mesh.service('demo/ext.example'), undefined);
  configure(
    mesh,
    'serviceEntryVisibility: {defaultVisibility: NAMESPACE, policies: [{visibility: NONE, matchingRules: [{namespaceSelector: {matchLabels: {hide: "yes"}}}]}]}',
  );
  t.is(mesh.service('demo/ext.example')?.visibility, 'NAMESPACE');
  t.deepEqual(mesh.conditions('ServiceEntry/demo/ext'), [
    'istio.io/VisibilityApplied True Namespace',
  ]);
  mesh.apply(namespace('demo').replace('}', ', labels: {hide: "yes"}}'));
  t.is(mesh.service('demo/ext.example'), undefined);
});

test('the mesh’s order of failover is that of services that name none', (t) => {
  const mesh = new TestMesh();
  mesh.apply(ENTRY);
  t.is(mesh.service('demo/ext.example')?.loadBalancing, null);
  const labels = '["topology.kubernetes.io/region", "topology.kubernetes.io/zone"]';
  configure(mesh, `localityLbSetting: {failoverPriority: ${labels}}`);
  t.deepEqual(mesh.service('demo/ext.example')?.loadBalancing, {
    mode: 'FAILOVER',
    routingPreference: ['REGION', 'ZONE'],
    healthPolicy: 'ONLY_HEALTHY',
  });
  mesh.apply(
    ENTRY.replace(
      'namespace: demo',
      'namespace: demo, annotations: {networking.istio.io/traffic-distribution: PreferSameNode}',
    ),
  );
  t.deepEqual(mesh.service('demo/ext.example')?.loadBalancing?.routingPreference, [
    'NETWORK',
    'REGION',
    'ZONE',
    'SUBZONE',
    'NODE',
  ]);
  configure(mesh, `localityLbSetting: {enabled: false, failoverPriority: ${labels}}`);
  mesh.apply(ENTRY);
  t.is(mesh.service('demo/ext.example')?.loadBalancing, null);
});

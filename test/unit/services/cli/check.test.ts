import { readFile } from 'node:fs/promises';
import test from 'ava';
import { parseAllDocuments } from 'yaml';
import { definitionLines, nodeLines, serverLines } from '../../../../services/cli/check/before.ts';
import { releaseLines, releaseOf, replacesZtunnel } from '../../../../services/cli/check/after.ts';
import type { ClusterFacts } from '../../../../services/cli/check/facts.ts';
import { checkLines, failed, linesAbout, ok } from '../../../../services/cli/check/line.ts';
import { otherMeshLines } from '../../../../services/cli/check/meshes.ts';
import { DEFINITIONS, NEEDED_RIGHTS } from '../../../../services/cli/check/rights.ts';
import type { Workload } from '../../../../services/cli/cluster/workloads.ts';

const root = new URL('../../../../', import.meta.url);

const workload = (fields: Partial<Workload>): Workload => ({
  kind: 'DaemonSet',
  namespace: 'istio-system',
  name: 'one',
  labels: {},
  podLabels: {},
  account: 'default',
  env: {},
  desired: 2,
  updated: 2,
  ready: 2,
  ...fields,
});

const facts: ClusterFacts = {
  namespace: 'istio-system',
  version: { value: 'v1.34.4' },
  nodes: { value: [{ name: 'a', os: 'linux', kernel: '5.10.0-8-amd64' }] },
  namespaceLabels: { value: {} },
  definitions: { value: DEFINITIONS.map((name) => ({ name, served: null })) },
  gatewayApi: { value: true },
  workloads: { value: [] },
  own: { value: [] },
  cilium: { value: null },
  missingToInstall: { value: [] },
  missingToRead: { value: [] },
  ztunnelAccount: { value: false },
  webhookReady: { value: null },
};

const states = (lines: readonly { readonly status: string }[]): string[] =>
  lines.map(({ status }) => status);

test('the rights to install are those for the kinds of the chart', async (t) => {
  const text = await readFile(new URL('infra/kubernetes/weft.yaml', root), 'utf8');
  const kinds = parseAllDocuments(text).map(
    (document) => document.toJS() as { readonly apiVersion: string; readonly kind: string } | null,
  );
  const wanted = kinds
    .filter((one) => one !== null)
    .map(({ apiVersion, kind }) => {
      const group = apiVersion.includes('/') ? apiVersion.split('/')[0] : '';
      return `${group}/${kind.toLowerCase().replace(/y$/, 'ie')}s`;
    });
  // Helm keeps its release in a Secret, creates the definitions, and runs a Job before it removes the chart.
  const more = ['/secrets', 'apiextensions.k8s.io/customresourcedefinitions', 'batch/jobs'];
  const asked = NEEDED_RIGHTS.map(({ group, resource }) => `${group}/${resource}`);
  t.deepEqual([...new Set([...wanted, ...more])].sort(), asked.toSorted());
});

test('the definitions that are looked for are those of the chart', async (t) => {
  const text = await readFile(new URL('infra/helm/weft/crds/istio.yaml', root), 'utf8');
  const names = parseAllDocuments(text).map(
    (document) =>
      (document.toJS() as { readonly metadata: { readonly name: string } }).metadata.name,
  );
  t.deepEqual(names.sort(), DEFINITIONS.toSorted());
});

test('the oldest version is that of the chart', async (t) => {
  const chart = await readFile(new URL('infra/helm/weft/Chart.yaml', root), 'utf8');
  const oldest = /kubeVersion: '>=(?<version>1\.\d+)/.exec(chart)?.groups?.['version'];
  t.deepEqual(states(serverLines({ ...facts, version: { value: `v${oldest}.0` } })), ['ok']);
  for (const version of ['v1.29.9', 'v1', 'something']) {
    t.deepEqual(
      states(serverLines({ ...facts, version: { value: version } })),
      ['failed'],
      version,
    );
  }
});

test('old kernels and settings of Cilium are named', (t) => {
  const old = { name: 'b', os: 'linux', kernel: '4.17.3' };
  const lines = nodeLines({
    ...facts,
    nodes: { value: [old, { name: 'w', os: 'windows', kernel: '10.0' }] },
    cilium: { value: { 'cni-exclusive': 'true', 'kube-proxy-replacement': 'true' } },
  });
  t.deepEqual(states(lines), ['failed', 'failed', 'failed']);
  t.regex(lines[0]?.says ?? '', /b \(4\.17\.3\)/);
  const fitting = {
    'cni-exclusive': 'false',
    'bpf-lb-sock': 'true',
    'bpf-lb-sock-hostns-only': 'true',
  };
  t.deepEqual(states(nodeLines({ ...facts, cilium: { value: fitting } })).at(-1), 'ok');
});

test('absent definitions are right before an installation, and wrong after it', (t) => {
  t.deepEqual(states(definitionLines(facts, false)), ['ok', 'ok']);
  t.deepEqual(states(definitionLines(facts, true)), ['failed', 'ok']);
  const served = DEFINITIONS.map((name) => ({ name, served: ['v1beta1'] }));
  t.deepEqual(states(definitionLines({ ...facts, definitions: { value: served } }, false)), [
    'failed',
    'ok',
  ]);
});

test('another mesh is told from an own release', (t) => {
  const labels = { 'app.kubernetes.io/part-of': 'weft' };
  const own = workload({ name: 'weft-node-proxy', labels, podLabels: { app: 'ztunnel' } });
  const value = [own];
  t.deepEqual(states(otherMeshLines({ ...facts, workloads: { value } })), ['ok']);
  const others = [
    workload({ name: 'ztunnel', podLabels: { app: 'ztunnel' } }),
    workload({ name: 'istio-cni-node', podLabels: { 'k8s-app': 'istio-cni-node' } }),
    workload({ kind: 'Deployment', name: 'istiod', podLabels: { app: 'istiod' } }),
    workload({ name: 'weft-node-proxy', namespace: 'elsewhere', labels }),
  ];
  const lines = otherMeshLines({ ...facts, workloads: { value: [own, ...others] } });
  t.deepEqual(states(lines), ['failed', 'failed', 'warning', 'failed']);
});

test('a release is recognised, and its state and versions are judged', (t) => {
  const labels = { 'app.kubernetes.io/part-of': 'weft', 'app.kubernetes.io/version': '1.2.0' };
  t.is(releaseOf(facts), null);
  t.is(releaseOf({ ...facts, own: { unread: 'no' } }), null);
  const release = [workload({ name: 'weft-node-proxy', labels, account: 'ztunnel' })];
  t.deepEqual(releaseOf({ ...facts, own: { value: [workload({}), ...release] } }), release);
  t.true(replacesZtunnel(release));
  t.deepEqual(states(releaseLines(release, 'istio-system', '1.2.0')), ['ok', 'ok']);
  const newer = workload({
    name: 'weft-redis',
    updated: 1,
    labels: { ...labels, 'app.kubernetes.io/version': '1.3.0' },
  });
  t.deepEqual(states(releaseLines([...release, newer], 'istio-system', '1.4.0')), [
    'failed',
    'warning',
    'warning',
  ]);
});

test('lines stand under their subjects, with a summary', (t) => {
  const lines = [
    ...linesAbout('nodes', [ok('two')]),
    ...linesAbout('meshes', [failed('istiod', 'remove it')]),
    ...linesAbout('nodes', [ok('new')]),
  ];
  t.is(
    checkLines(lines).join('\n'),
    'nodes\n  √ two\n  √ new\n\nmeshes\n  × istiod\n      remove it\n\n1 failed',
  );
  t.is(checkLines(linesAbout('nodes', [ok('two')])).at(-1), 'all 1 checks passed');
});

/** Tests that the pods of infra/kubernetes/weft.yaml have what their roles read, and no right that they do not need. */
import { readFile } from 'node:fs/promises';
import test from 'ava';
import { parseAllDocuments } from 'yaml';
import * as z from 'zod';
import { ACTORS } from '../../../services/local-mesh/actors.ts';
import { podEnvironments } from '../../support/pod-environment.ts';

const variable = z.object({
  name: z.string(),
  value: z.string().optional(),
});
const container = z.object({
  name: z.string(),
  image: z.string(),
  env: z.array(variable).default([]),
  volumeMounts: z.array(z.object({ name: z.string(), mountPath: z.string() })),
  readinessProbe: z.object({}).optional(),
  securityContext: z.object({
    allowPrivilegeEscalation: z.literal(false),
    readOnlyRootFilesystem: z.literal(true),
    capabilities: z.object({
      drop: z.tuple([z.literal('ALL')]),
      add: z.array(z.string()).default([]),
    }),
  }),
});
const workload = z.object({
  kind: z.enum(['DaemonSet', 'Deployment']),
  metadata: z.object({ name: z.string() }),
  spec: z.object({
    selector: z.object({ matchLabels: z.record(z.string(), z.string()) }),
    template: z.object({
      metadata: z.object({ labels: z.record(z.string(), z.string()) }),
      spec: z.object({
        serviceAccountName: z.string(),
        automountServiceAccountToken: z.boolean(),
        priorityClassName: z.string(),
        terminationGracePeriodSeconds: z.number().optional(),
        hostNetwork: z.never().optional(),
        hostPID: z.never().optional(),
        securityContext: z.object({
          runAsUser: z.number(),
          seccompProfile: z.object({ type: z.literal('RuntimeDefault') }),
        }),
        initContainers: z.array(container).default([]),
        containers: z.array(container),
        volumes: z.array(
          z.object({ name: z.string(), hostPath: z.object({ path: z.string() }).optional() }),
        ),
      }),
    }),
  }),
});

const file = new URL('../../../infra/kubernetes/weft.yaml', import.meta.url);
const objects = parseAllDocuments(await readFile(file, 'utf8')).map(
  (document) => document.toJS() as { readonly kind: string },
);
const workloads = objects
  .filter(({ kind }) => kind === 'DaemonSet' || kind === 'Deployment')
  .map((object) => workload.parse(object));
const containers = workloads.flatMap(({ metadata, spec }) =>
  spec.template.spec.containers.map((one) => ({
    workload: metadata.name,
    pod: spec.template.spec,
    one,
  })),
);

test('there is a workload for each role of a mesh on Kubernetes', (t) => {
  const names = workloads.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
  t.deepEqual(names.toSorted(), [
    'DaemonSet weft-cert-fetcher',
    'DaemonSet weft-node-agent',
    'DaemonSet weft-node-proxy',
    'DaemonSet weft-policy-evaluator',
    'DaemonSet weft-redis',
    'DaemonSet weft-xds-ingester',
    'Deployment weft-ca',
    'Deployment weft-control-plane',
  ]);
});

test('every role reads each variable that its container has, and accepts the value', async (t) => {
  const { roles, faults } = await podEnvironments(objects);
  t.deepEqual(faults, []);
  t.deepEqual(roles, [...ACTORS].toSorted());
});

test('every file that a container is told of lies in a volume of its own', (t) => {
  for (const { one, pod, workload: name } of containers) {
    const volumes = new Set(pod.volumes.map((volume) => volume.name));
    for (const mount of one.volumeMounts) t.true(volumes.has(mount.name), `${name}: ${mount.name}`);
    const targets = one.volumeMounts.map(({ mountPath }) => mountPath);
    for (const { value } of one.env) {
      const path = /^(?:unix:(?:\/\/)?)?(\/(?:var|host|etc|run)\/\S+)$/.exec(value ?? '')?.[1];
      if (path === undefined) continue;
      t.true(
        targets.some((target) => path === target || path.startsWith(`${target}/`)) ||
          targets.includes(`/host${path}`),
        `${name} sees ${path}`,
      );
    }
  }
});

test('all volumes are mounted, and folders of the node only where they are needed', (t) => {
  const folders: Record<string, string[]> = {};
  for (const { metadata, spec } of workloads) {
    const { volumes, containers: all, initContainers } = spec.template.spec;
    const mounted = new Set(
      [...all, ...initContainers].flatMap((one) => one.volumeMounts.map(({ name }) => name)),
    );
    for (const { name } of volumes) t.true(mounted.has(name), `${metadata.name}: ${name}`);
    const paths = volumes.flatMap(({ hostPath }) => (hostPath === undefined ? [] : hostPath.path));
    if (paths.length > 0) folders[metadata.name] = paths.toSorted();
  }
  const redis = '/var/run/weft/redis';
  t.deepEqual(folders, {
    'weft-cert-fetcher': [redis],
    'weft-node-agent': [
      '/etc/cni/net.d',
      '/opt/cni/bin',
      '/proc',
      '/run/xtables.lock',
      '/var/lib/weft',
      '/var/run/istio-cni',
      '/var/run/netns',
      redis,
      '/var/run/ztunnel',
    ].toSorted(),
    'weft-node-proxy': [redis, '/var/run/ztunnel'].toSorted(),
    'weft-policy-evaluator': [redis],
    'weft-redis': ['/var/lib/weft/redis', redis],
    'weft-xds-ingester': [redis],
  });
});

test('only agent and proxy have capabilities and are root, and only what calls the API server has its token', (t) => {
  const enter = ['NET_ADMIN', 'NET_RAW', 'SYS_ADMIN'];
  const capable: Readonly<Record<string, readonly string[]>> = {
    'weft-node-agent': [...enter, 'SYS_PTRACE', 'DAC_OVERRIDE'],
    'weft-node-proxy': enter,
  };
  for (const { one, pod, workload: name } of containers) {
    t.deepEqual(one.securityContext.capabilities.add, [...(capable[name] ?? [])], name);
    t.is(pod.securityContext.runAsUser, name in capable ? 0 : 1337, name);
    const calls = ['weft-node-agent', 'weft-control-plane', 'weft-ca'].includes(name);
    t.is(pod.automountServiceAccountToken, calls, name);
    t.is(pod.serviceAccountName, name);
    t.true(one.readinessProbe !== undefined, name);
  }
});

test('labels select the pods of one workload, which the mesh never enrols', (t) => {
  const seen = new Set<string>();
  for (const { spec, metadata } of workloads) {
    const { labels } = spec.template.metadata;
    const selected = Object.entries(spec.selector.matchLabels);
    t.true(selected.length > 0);
    for (const [key, value] of selected) t.is(labels[key], value, metadata.name);
    const selector = selected
      .map((pair) => pair.join('='))
      .toSorted()
      .join();
    t.false(seen.has(selector), metadata.name);
    seen.add(selector);
    t.is(labels['istio.io/dataplane-mode'], 'none', metadata.name);
  }
});

test('the grace period of a proxy leaves it the time of its drain', (t) => {
  const proxy = containers.find(({ workload: name }) => name === 'weft-node-proxy');
  const drain = proxy?.one.env.find(({ name }) => name === 'CONNECTION_TERMINATION_DEADLINE');
  t.is(drain?.value, '600s');
  t.true((proxy?.pod.terminationGracePeriodSeconds ?? 0) >= 600 + 15);
});

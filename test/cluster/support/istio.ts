/** An Istio ambient installation on a cluster, by Istio's own charts. */
import { join } from 'node:path';
import type { TestCluster } from './cluster.ts';
import { ISTIO_HUB, ISTIO_TAG } from './istio-images.ts';
import { helm } from './weft.ts';

/** The namespace of Istio, and of Weft in its place. */
export const ISTIO_NAMESPACE = 'istio-system';
/** The label of a node whose ztunnel leaves. */
export const ZTUNNEL_LABEL = 'ztunnel';

const COMMON = [
  'profile=ambient',
  `global.hub=${ISTIO_HUB}`,
  `global.tag=${ISTIO_TAG}`,
  'global.variant=',
  'global.imagePullPolicy=Never',
];
/** The nodes are small. */
const SMALL = 'resources.requests.memory=64Mi';

/** Releases in the order in which upstream's documentation installs them. */
const RELEASES: Readonly<Record<string, { readonly chart: string; readonly values: string[] }>> = {
  'istio-base': { chart: 'base', values: [] },
  istiod: {
    chart: 'istio-control/istio-discovery',
    values: ['pilot.resources.requests.memory=128Mi', 'autoscaleEnabled=false'],
  },
  'istio-cni': { chart: 'istio-cni', values: [] },
};

/** Installs definitions, istiod and istio-cni, and waits until they are ready. */
export async function installIstio(
  cluster: TestCluster,
  program: string,
  charts: string,
): Promise<void> {
  for (const [release, { chart, values }] of Object.entries(RELEASES)) {
    await install(cluster, program, release, join(charts, chart), [...COMMON, ...values]);
  }
}

/** Installs ztunnel on all nodes, as it comes. */
export async function installZtunnel(
  cluster: TestCluster,
  program: string,
  charts: string,
): Promise<void> {
  await install(cluster, program, 'ztunnel', join(charts, 'ztunnel'), [
    `hub=${ISTIO_HUB}`,
    `tag=${ISTIO_TAG}`,
    'variant=',
    'imagePullPolicy=Never',
    SMALL,
  ]);
}

/** Lets ztunnel leave the nodes with {@link ZTUNNEL_LABEL}; its pods have `drainSeconds` to end from now on. */
export async function prepareZtunnel(
  cluster: TestCluster,
  program: string,
  charts: string,
  drainSeconds: number,
): Promise<void> {
  const terms =
    'affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms';
  const term = `${terms}[0].matchExpressions[0]`;
  const values = [
    `${term}.key=${ZTUNNEL_LABEL}`,
    `${term}.operator=NotIn`,
    `${term}.values={off}`,
    `terminationGracePeriodSeconds=${drainSeconds}`,
  ];
  const chart = ['upgrade', 'ztunnel', join(charts, 'ztunnel'), '-n', ISTIO_NAMESPACE];
  const wait = ['--reuse-values', '--wait', '--timeout=5m'];
  await helm(cluster, program, ...chart, ...wait, '--set', values.join(','));
}

async function install(
  cluster: TestCluster,
  program: string,
  release: string,
  chart: string,
  values: readonly string[],
): Promise<void> {
  const set = values.flatMap((value) => ['--set', value]);
  const where = ['-n', ISTIO_NAMESPACE, '--create-namespace', '--wait', '--timeout=5m'];
  await helm(cluster, program, 'install', release, chart, ...where, ...set);
}

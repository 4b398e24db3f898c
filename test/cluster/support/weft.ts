/** Weft's chart on a cluster. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CHART } from '../../kubernetes/support/helm.ts';
import { WEFT_IMAGE } from '../../support/weft-image.ts';
import type { TestCluster } from './cluster.ts';

const run = promisify(execFile);

/** The namespace of the release. */
export const SYSTEM = 'istio-system';
const NAMESPACE_LABEL = 'istio.io/dataplane-mode';
const [REPOSITORY, TAG] = WEFT_IMAGE.split(':');

/** Runs Helm with an administrator's rights; returns its output. */
export async function helm(
  cluster: TestCluster,
  program: string,
  ...words: readonly string[]
): Promise<string> {
  const home = join(cluster.folder, 'helm');
  const { stdout } = await run(program, [`--kubeconfig=${cluster.kubeconfig}`, ...words], {
    env: { HOME: home },
  });
  return stdout;
}

/** Installs the chart, with its default values besides `values`, and waits until every workload is ready. */
export async function installWeft(
  cluster: TestCluster,
  program: string,
  values: readonly string[] = [],
): Promise<void> {
  const image = `image.repository=${REPOSITORY},image.tag=${TAG},image.pullPolicy=Never`;
  const set = [image, ...values].join(',');
  const where = ['-n', SYSTEM, '--create-namespace', '--set', set];
  await helm(cluster, program, 'install', 'weft', CHART, ...where, '--wait', '--timeout=5m');
}

/** Upgrades the release to an image, with the values that it has. Does not wait for the pods. */
export async function upgradeWeft(
  cluster: TestCluster,
  program: string,
  image: string,
): Promise<void> {
  const [repository, tag] = image.split(':');
  const set = ['--reuse-values', '--set', `image.repository=${repository},image.tag=${tag}`];
  await helm(cluster, program, 'upgrade', 'weft', CHART, '-n', SYSTEM, ...set);
}

/** Takes the release one step back. Does not wait for the pods. */
export async function rollBack(cluster: TestCluster, program: string): Promise<void> {
  await helm(cluster, program, 'rollback', 'weft', '-n', SYSTEM);
}

/** Removes the release and waits until its pods are gone. */
export async function uninstallWeft(cluster: TestCluster, program: string): Promise<void> {
  await helm(cluster, program, 'uninstall', 'weft', '-n', SYSTEM, '--wait');
  const pods = ['pods', '-l', 'app.kubernetes.io/part-of=weft', '-n', SYSTEM];
  await cluster.kubectl('wait', '--for=delete', ...pods, '--timeout=120s');
}

/** Takes a namespace's pods out of the mesh. */
export async function leave(cluster: TestCluster, namespace: string): Promise<void> {
  await cluster.kubectl('label', 'namespace', namespace, `${NAMESPACE_LABEL}-`);
}

/** Brings a namespace's pods into the mesh. */
export async function enrol(cluster: TestCluster, namespace: string): Promise<void> {
  await cluster.kubectl('label', 'namespace', namespace, `${NAMESPACE_LABEL}=ambient`);
}

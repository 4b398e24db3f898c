/** Judges an installed release. Pure. */
import { PART_OF, VERSION_LABEL } from '../cluster/workloads.ts';
import type { Workload } from '../cluster/workloads.ts';
import { listed } from '../text-table.ts';
import type { ClusterFacts } from './facts.ts';
import { failed, judged, linesAbout, ok, warning } from './line.ts';
import type { CheckLine } from './line.ts';
import { rightText } from './rights.ts';

/** The workloads of the release; null where none is installed, or nobody can tell. */
export function releaseOf({ own }: ClusterFacts): readonly Workload[] | null {
  if (!('value' in own)) return null;
  const release = own.value.filter(({ labels }) => labels[PART_OF] === 'weft');
  return release.length === 0 ? null : release;
}

/** Whether the release stands in the place of ztunnel. */
export function replacesZtunnel(release: readonly Workload[]): boolean {
  return release.some(({ name, account }) => name === 'weft-node-proxy' && account === 'ztunnel');
}

/** The lines about the release's workloads and versions. */
export function releaseLines(
  release: readonly Workload[],
  namespace: string,
  cliVersion: string,
): readonly CheckLine[] {
  const behind = release.filter(
    ({ desired, ready, updated }) => ready < desired || updated < desired,
  );
  const versions = [...new Set(release.map(({ labels }) => labels[VERSION_LABEL] ?? 'unknown'))];
  const [version = 'unknown'] = versions;
  return linesAbout('release', [
    ...behind.map(({ kind, name, desired, ready, updated }) =>
      failed(
        `${kind} ${name}: ${ready} of ${desired} pods are ready, ${updated} have its newest form`,
        `kubectl -n ${namespace} describe pods -l app.kubernetes.io/name=${name}; weft logs ${name.replace(/^weft-/, '')}`,
      ),
    ),
    ...(behind.length > 0
      ? []
      : [ok(`all pods of ${release.length} workloads are ready and up to date`)]),
    versions.length > 1
      ? warning(`several versions: ${versions.join(', ')}`, 'finish the upgrade: helm upgrade')
      : ok(`all workloads are of version ${version}`),
    ...(versions.includes(cliVersion)
      ? []
      : [warning(`this command is ${cliVersion}`, `use the command of version ${version}`)]),
  ]);
}

/** The line about the admission webhook. */
export function webhookLines({ webhookReady }: ClusterFacts): readonly CheckLine[] {
  return judged('release', webhookReady, (ready) => {
    if (ready === true) return [ok('the admission webhook has its certificate')];
    const says =
      ready === null ? 'there is no admission webhook' : 'the admission webhook has no certificate';
    const todo = 'the leader of the control planes writes it: weft logs control-plane';
    return [warning(says, ready === null ? 'helm upgrade' : todo)];
  });
}

/** The line about the user's rights to read the mesh. */
export function readRightLines({ missingToRead, namespace }: ClusterFacts): readonly CheckLine[] {
  return judged('permissions', missingToRead, (missing) =>
    missing.length === 0
      ? [ok('you may use every read command')]
      : [
          warning(
            `you may not: ${listed(missing.map(rightText))}`,
            `commands that need it say so; a Role in ${namespace} grants it (docs/kubernetes.md)`,
          ),
        ],
  );
}

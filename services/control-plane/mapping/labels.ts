/** Derives names from labels, annotations and owners (docs/spec/istiod-ambient.md §1.1). Pure. */
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import type { ObjectMeta } from '../manifests/fields.ts';

/** The label of the system namespace, or of a gateway, that names a network. */
export const NETWORK_LABEL = 'topology.istio.io/network';

/** The label of the pods of a Gateway. */
export const GATEWAY_LABEL = 'gateway.networking.k8s.io/gateway-name';

const REDIRECTION = 'ambient.istio.io/redirection';
const TUNNEL = 'networking.istio.io/tunnel';

/** The application a workload belongs to. */
export function canonicalName(labels: Labels, workloadName: string): string {
  return (
    filled(labels['service.istio.io/canonical-name']) ??
    filled(labels['app.kubernetes.io/name']) ??
    filled(labels['app']) ??
    workloadName
  );
}

/** The version of that application. */
export function canonicalRevision(labels: Labels): string {
  return (
    filled(labels['service.istio.io/canonical-revision']) ??
    filled(labels['app.kubernetes.io/version']) ??
    filled(labels['version']) ??
    'latest'
  );
}

/** The tunnel protocol of a workload with this metadata. */
export function tunnelOf(metadata: Pick<ObjectMeta, 'labels' | 'annotations'>): {
  tunnelProtocol: 'HBONE' | 'NONE';
  nativeTunnel: boolean;
} {
  const nativeTunnel = metadata.labels?.[TUNNEL] === 'http';
  const enrolled = metadata.annotations?.[REDIRECTION] === 'enabled';
  return { tunnelProtocol: enrolled || nativeTunnel ? 'HBONE' : 'NONE', nativeTunnel };
}

/** The name of a pod's workload: from its label, its owner, or its own name. */
export function podWorkloadName(metadata: ObjectMeta): string {
  const labels = metadata.labels ?? {};
  return (
    filled(labels['service.istio.io/workload-name']) ?? ownerName(metadata, labels) ?? metadata.name
  );
}

function ownerName(metadata: ObjectMeta, labels: Labels): string | null {
  const owner = metadata.ownerReferences?.find((reference) => reference.controller === true);
  if (owner === undefined || (metadata.generateName ?? '') === '') return null;
  switch (owner.kind) {
    case 'ReplicaSet':
      return (
        withoutSuffix(owner.name, labels['pod-template-hash']) ??
        withoutSuffix(owner.name, labels['rollouts-pod-template-hash']) ??
        owner.name
      );
    case 'ReplicationController':
      return filled(labels['deploymentconfig']) ?? owner.name;
    case 'Job':
      // The names of a CronJob's jobs end with the time they were due.
      return /^(.+)-\d{8,10}$/.exec(owner.name)?.[1] ?? owner.name;
    default:
      return owner.name;
  }
}

function withoutSuffix(name: string, hash: string | undefined): string | null {
  if (hash === undefined || hash === '') return null;
  const suffix = `-${hash}`;
  return name.endsWith(suffix) ? name.slice(0, -suffix.length) : null;
}

function filled(text: string | undefined): string | null {
  return text === undefined || text === '' ? null : text;
}

/** Maps containers to objects and records of the mesh. Pure. */
import type { PodSandboxContainer } from '../../lib/docker/pod-container.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import type { NamespaceObject, PodObject } from '../local-mesh/objects.ts';
import { podRecord } from '../local-mesh/pod-plan.ts';

/** The manifest of a pod that has none. */
export function podManifest({
  key,
  node,
  labels,
  account,
}: PodSandboxContainer): Record<string, unknown> {
  const [namespace, name] = key.split('/');
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { namespace, name, labels },
    spec: {
      nodeName: node,
      serviceAccountName: account,
      containers: [{ name: 'main', image: 'container' }],
    },
  };
}

/** The node agent's record of the pod. */
export function recordOf(
  sandbox: PodSandboxContainer,
  pod: PodObject,
  namespace: NamespaceObject | undefined,
): PodRecord {
  const { node, pid, addresses } = sandbox;
  const place = { node, netns: `/proc/${pid}/ns/net`, addresses };
  // A container that holds a pod's network has its own network, even if the manifest says otherwise.
  return { ...podRecord(pod, namespace, place), hostNetwork: false };
}

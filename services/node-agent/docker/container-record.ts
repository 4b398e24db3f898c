import { join } from 'node:path';
import type { PodSandboxContainer } from '../../../lib/docker/pod-container.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';

/** Returns the record of a container. Its labels are the pod's labels and annotations: Docker has nothing else of that kind. */
export function containerRecord(sandbox: PodSandboxContainer, procDir: string): PodRecord {
  const { key, id, pid, node, account, addresses, labels } = sandbox;
  const [namespace = '', name = ''] = key.split('/');
  return {
    uid: id,
    namespace,
    name,
    serviceAccount: account,
    node,
    netns: join(procDir, String(pid), 'ns/net'),
    addresses: [...addresses],
    labels,
    annotations: labels,
    namespaceLabels: {},
    hostNetwork: false,
  };
}

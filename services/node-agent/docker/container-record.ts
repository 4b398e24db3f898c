import { join } from 'node:path';
import type { PodSandboxContainer } from '../../../lib/docker/pod-container.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';

/** The facts about a container that its record tells. */
export type RecordedContainer = Pick<
  PodSandboxContainer,
  'key' | 'id' | 'pid' | 'node' | 'account' | 'addresses' | 'labels'
>;

/** Returns the record of a container. Its labels are the pod's labels and annotations: Docker has nothing else of that kind. */
export function containerRecord(sandbox: RecordedContainer, procDir: string): PodRecord {
  const { key, id, pid, node, account, addresses, labels } = sandbox;
  const [namespace = '', name = ''] = key.split('/');
  return {
    uid: id,
    namespace,
    name,
    serviceAccount: account,
    node,
    netns: join(procDir, String(pid), 'ns/net'),
    // A container that starts and the engine's list tell them in different orders.
    addresses: addresses.toSorted(),
    labels,
    annotations: labels,
    namespaceLabels: {},
    hostNetwork: false,
  };
}

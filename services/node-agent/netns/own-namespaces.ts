import { statSync } from 'node:fs';
import { join } from 'node:path';
import { threadNetns } from '../../../lib/linux/netns.ts';
import type { NetnsIdentity } from '../../../lib/linux/netns.ts';

/**
 * Returns the namespaces in which no pod's rules may be written: the agent's own, and that of process 1 below `procDir`, the node's.
 * The two differ where the agent's pod has a network of its own. A process 1 that may not be inspected is left out.
 */
export function ownNamespaces(procDir: string): readonly NetnsIdentity[] {
  try {
    const { ino, dev } = statSync(join(procDir, '1/ns/net'), { bigint: true });
    return [threadNetns(), { inode: String(ino), device: String(dev) }];
  } catch {
    return [threadNetns()];
  }
}

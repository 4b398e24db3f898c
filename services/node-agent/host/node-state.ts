import { rm } from 'node:fs/promises';
import { join } from 'node:path';

/** The folder of the append-only file of the node's own Redis (infra/helm/weft/templates/redis.yaml). */
const REDIS_FOLDER = '/var/lib/weft/redis';

/**
 * Removes the files that Weft keeps on a node across restarts. `hostRoot` is a mount of the node's files. A Redis that still runs
 * goes on without them. Rejects with the file system's error.
 */
export async function removeNodeState(hostRoot: string): Promise<void> {
  await rm(join(hostRoot, REDIS_FOLDER), { recursive: true, force: true });
}

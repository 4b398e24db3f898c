/** Hands connections that wait in the queue of a closing listener to another one. */
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { readSysctl, writeSysctl } from '../../lib/linux/netns.ts';
import type { Logger } from '../../lib/log/logger.ts';

const MIGRATE = 'net.ipv4.tcp_migrate_req';

/**
 * Has the kernel hand queued connections of a closing listener to another one of the same port and user, where it may
 * be set; `/proc/sys` is read-only in many containers. False where they would be reset instead.
 */
export function enableMigration(netnsFd: number, log: Logger): boolean {
  try {
    if (readSysctl(netnsFd, MIGRATE) !== '1') writeSysctl(netnsFd, MIGRATE, '1');
    return true;
  } catch (error) {
    if (!(error instanceof MeshError)) throw error;
    log.debug({ error: errorText(error) }, 'pod.migration-unavailable');
    return false;
  }
}

/** Hands connections that wait in the queue of a closing listener to another one. */
import type { Server, Socket } from 'node:net';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { isExhausted } from '../../lib/linux/errno.ts';
import { readSysctl, writeSysctl } from '../../lib/linux/netns.ts';
import { acceptQueued } from '../../lib/linux/sockets.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { adoptSocket, serverFd } from '../../lib/net/socket.ts';
import { MAX_QUEUED_ACCEPTED } from './limits.ts';

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

/** Accepts what waits at this moment, as far as there are descriptors; the sockets come paused and half-open, as from the server itself. */
export function takeQueued(server: Server): Socket[] {
  const fd = serverFd(server);
  if (fd === null) return [];
  const sockets: Socket[] = [];
  while (sockets.length < MAX_QUEUED_ACCEPTED) {
    const accepted = acceptOne(fd);
    if (accepted === null) break;
    sockets.push(adoptSocket(accepted));
  }
  return sockets;
}

function acceptOne(fd: number): number | null {
  try {
    return acceptQueued(fd);
  } catch (error) {
    // The rest is reset with the listener, which must close in any case.
    if (isExhausted(error)) return null;
    throw error;
  }
}

import type { Socket } from 'node:net';
import { socketPair } from '../linux/carry.ts';
import { closeFd } from '../linux/netns.ts';
import { adoptSocket } from './socket.ts';

/** Makes a pair of connected local sockets, one as a Node socket. The caller owns both. Throws NATIVE_SYSCALL when no descriptors are free. */
export function localPair(): { readonly socket: Socket; readonly fd: number } {
  const [ours, fd] = socketPair();
  try {
    return { socket: adoptSocket(ours), fd };
  } catch (error) {
    closeFd(ours);
    closeFd(fd);
    throw error;
  }
}

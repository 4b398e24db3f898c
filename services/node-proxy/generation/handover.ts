import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { isExhausted } from '../../../lib/linux/errno.ts';

/** A pod whose listeners are about to close. */
export interface ListeningPod {
  readonly netnsFd: number;
  /** How many sockets this process has on each port. */
  readonly own: number;
}

/**
 * Returns true when another process listens on all of the ports in every pod. The kernel's own list decides, not what Redis or
 * the node agent know. A pod whose namespace is gone counts as covered, because it takes no connections.
 */
export function coveredByOthers(
  pods: Iterable<ListeningPod>,
  ports: readonly number[],
  listenersByPort: (netnsFd: number) => ReadonlyMap<number, number>,
): boolean {
  for (const { netnsFd, own } of pods) {
    try {
      const listeners = listenersByPort(netnsFd);
      if (ports.some((port) => (listeners.get(port) ?? 0) <= own)) return false;
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      // No descriptor was left to look with, so nothing is known about the pod.
      if (isExhausted(error)) return false;
    }
  }
  return true;
}

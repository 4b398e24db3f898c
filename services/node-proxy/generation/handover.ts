import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { isExhausted } from '../../../lib/linux/errno.ts';

/** A pod whose listeners are about to close. */
export interface ListeningPod {
  readonly netnsFd: number;
  /** Sockets of this process on each of the ports. */
  readonly own: number;
}

/**
 * Whether somebody else listens on all of the ports in every pod, by the kernel's own list: whoever it is, and whatever
 * Redis or the node agent know. A pod whose namespace cannot be looked at has nobody who would miss it.
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
      // Not looked at for want of a descriptor: nothing is known of the pod.
      if (isExhausted(error)) return false;
    }
  }
  return true;
}

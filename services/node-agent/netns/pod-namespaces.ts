/** Opens the network namespaces of pods: by the path in the record, by the container runtime, or found among the node's processes. */
import { join } from 'node:path';
import type { Sandboxes } from '../../../lib/cri/sandboxes.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { errnoOf } from '../../../lib/linux/errno.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';
import { holdsAddress } from './pod-addresses.ts';
import { runtimeUids } from './runtime-uids.ts';
import { scanProcesses } from './process-scan.ts';
import type { WantedPod } from './process-scan.ts';

interface Search {
  readonly pod: WantedPod & Pick<PodRecord, 'annotations'>;
  readonly resolve: (netns: NetnsHandle) => void;
  readonly reject: (error: unknown) => void;
}

/** Where a {@link PodNamespaces} looks. */
export interface NamespaceSources {
  /** A mount of the node's `/proc`. */
  readonly procDir: string;
  /** Null where the runtime cannot be asked. */
  readonly sandboxes: Pick<Sandboxes, 'processOf'> | null;
  readonly log: Pick<Logger, 'warn'>;
}

/** One scan of the processes serves all pods that wait for it. */
export class PodNamespaces {
  readonly #sources: NamespaceSources;
  /** The runtime's last failure, which is told once. */
  #problem: string | null = null;
  #waiting: Search[] = [];
  #scanning = false;

  constructor(sources: NamespaceSources) {
    this.#sources = sources;
  }

  /** Opens the namespace of the pod; the caller releases it. Rejects with NETNS_UNAVAILABLE when there is none. */
  async open(record: PodRecord): Promise<NetnsHandle> {
    if (record.netns !== null) return this.#named(record, record.netns);
    const told = await this.#ofRuntime(record);
    if (told !== null) return told;
    const { promise, resolve, reject } = Promise.withResolvers<NetnsHandle>();
    this.#waiting.push({ pod: record, resolve, reject });
    if (!this.#scanning) void this.#scan();
    return promise;
  }

  /**
   * Opens the namespace that the record names. One named by a process must have an address of the pod, if any are known: the
   * process may have ended, and another have its number.
   */
  #named({ uid, addresses }: PodRecord, path: string): NetnsHandle {
    const netns = openPath(path, uid);
    try {
      const lasting = !path.startsWith(join(this.#sources.procDir, '/'));
      if (lasting || addresses.length === 0 || holdsAddress(netns, addresses)) {
        return netns.retain();
      }
    } finally {
      netns.release();
    }
    throw new MeshError(
      'NETNS_UNAVAILABLE',
      `network namespace ${path} has no address of pod ${uid} (${addresses.join(', ') || 'none'})`,
    );
  }

  /** Opens the namespace of the pod's sandbox; null when the runtime cannot tell it, or tells one without an address of the pod. */
  async #ofRuntime(record: PodRecord): Promise<NetnsHandle | null> {
    const { uid, addresses } = record;
    const { sandboxes, procDir, log } = this.#sources;
    if (sandboxes === null) return null;
    try {
      let pid: number | null = null;
      for (const known of runtimeUids(record)) pid ??= await sandboxes.processOf(known);
      this.#problem = null;
      const netns = pid === null ? null : openPath(join(procDir, String(pid), 'ns/net'), uid);
      try {
        return netns !== null && holdsAddress(netns, addresses) ? netns.retain() : null;
      } finally {
        netns?.release();
      }
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      // The processes tell it, too.
      if (this.#problem !== error.message)
        log.warn({ reason: error.message }, 'netns.runtime-failed');
      this.#problem = error.message;
      return null;
    }
  }

  /** Never rejects: a failure is that of the searches. */
  async #scan(): Promise<void> {
    this.#scanning = true;
    while (this.#waiting.length > 0) {
      const searches = this.#waiting;
      this.#waiting = [];
      try {
        const wanted = new Map<string, WantedPod[]>();
        for (const { pod } of searches) {
          for (const uid of runtimeUids(pod)) wanted.set(uid, [...(wanted.get(uid) ?? []), pod]);
        }
        answer(searches, await scanProcesses(this.#sources.procDir, wanted));
      } catch (error) {
        const problem = new MeshError(
          'NETNS_UNAVAILABLE',
          `the processes in ${this.#sources.procDir} cannot be searched`,
          { cause: error },
        );
        for (const { reject } of searches) reject(problem);
      }
    }
    this.#scanning = false;
  }
}

function answer(searches: readonly Search[], found: ReadonlyMap<string, NetnsHandle>): void {
  for (const { pod, resolve, reject } of searches) {
    const netns = found.get(pod.uid);
    if (netns !== undefined) resolve(netns.retain());
    else
      reject(
        new MeshError(
          'NETNS_UNAVAILABLE',
          `no process of pod ${pod.uid} with an address of ${pod.addresses.join(', ') || 'none'} was found`,
        ),
      );
  }
  for (const netns of found.values()) netns.release();
}

function openPath(path: string, uid: string): NetnsHandle {
  try {
    return NetnsHandle.open(path);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === null) throw error;
    throw new MeshError(
      'NETNS_UNAVAILABLE',
      `network namespace ${path} of pod ${uid} cannot be opened: ${errno}`,
      { cause: error, detail: { path } },
    );
  }
}

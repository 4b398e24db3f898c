/** Opens the network namespaces of pods: by the path in the record, or found among the processes of the node. */
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { errnoOf } from '../../../lib/linux/errno.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';
import { scanProcesses } from './process-scan.ts';
import type { WantedPod } from './process-scan.ts';

interface Search {
  readonly pod: WantedPod;
  readonly resolve: (netns: NetnsHandle) => void;
  readonly reject: (error: unknown) => void;
}

/** One scan of the processes serves all pods that wait for it. */
export class PodNamespaces {
  readonly #procDir: string;
  #waiting: Search[] = [];
  #scanning = false;

  /** `procDir` is a mount of the node's `/proc`. */
  constructor(procDir: string) {
    this.#procDir = procDir;
  }

  /** Opens the namespace of the pod; the caller releases it. Rejects with NETNS_UNAVAILABLE when there is none. */
  async open(record: PodRecord): Promise<NetnsHandle> {
    if (record.netns !== null) return openPath(record.netns, record.uid);
    const { promise, resolve, reject } = Promise.withResolvers<NetnsHandle>();
    this.#waiting.push({ pod: record, resolve, reject });
    if (!this.#scanning) void this.#scan();
    return promise;
  }

  /** Never rejects: a failure is that of the searches. */
  async #scan(): Promise<void> {
    this.#scanning = true;
    while (this.#waiting.length > 0) {
      const searches = this.#waiting;
      this.#waiting = [];
      try {
        const wanted = new Map(searches.map(({ pod }) => [pod.uid, pod]));
        answer(searches, await scanProcesses(this.#procDir, wanted));
      } catch (error) {
        const problem = new MeshError(
          'NETNS_UNAVAILABLE',
          `the processes in ${this.#procDir} cannot be searched`,
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

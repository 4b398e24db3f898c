import { errorText } from '../../../lib/errors/mesh-error.ts';
import { openNetns } from '../../../lib/linux/netns.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { WorkloadName } from '../state-thread/protocol.ts';
import type { PodManager } from './pod-manager.ts';
import type { PodSource } from './pod-source.ts';

const OWN_NETNS = '/proc/self/ns/net';

type Pods = Pick<PodManager, 'add' | 'sessionOpened' | 'snapshot'>;

/** The one pod of dedicated mode: the network namespace the process runs in, and no agent that could take it away. */
export class DedicatedPod implements PodSource {
  readonly #workload: WorkloadName;
  readonly #pods: Pods;
  readonly #log: Logger;
  #done: Promise<void> = Promise.resolve();

  constructor(workload: WorkloadName, pods: Pods, log: Logger) {
    this.#workload = workload;
    this.#pods = pods;
    this.#log = log;
  }

  /** Throws NATIVE_SYSCALL when the own namespace cannot be opened. */
  start(): void {
    this.#done = this.#serve(openNetns(OWN_NETNS));
  }

  drain(): void {}

  close(): Promise<void> {
    return this.#done;
  }

  async #serve(netnsFd: number): Promise<void> {
    const { namespace, name } = this.#workload;
    const uid = `dedicated/${namespace}/${name}`;
    this.#pods.sessionOpened();
    try {
      await this.#pods.add({ uid, ...this.#workload }, netnsFd);
    } catch (error) {
      // The pod stays pending, which readiness says, and is tried again.
      this.#log.debug({ uid, error: errorText(error) }, 'dedicated.not-yet');
    }
    // Known as the whole list only now: before, no pod at all would count as all of them served.
    this.#pods.snapshot(new Set([uid]));
  }
}

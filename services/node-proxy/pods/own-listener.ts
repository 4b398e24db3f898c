import { Backoff } from '../../../lib/clock/backoff.ts';
import { pause } from '../../../lib/clock/clock.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { closeFd, openNetns } from '../../../lib/linux/netns.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { PodInfo } from '../../../workers/listener/protocol/control.ts';
import { OWN_LISTENER_BACKOFF } from '../limits.ts';
import type { PlacedPod } from '../pool/placed-pod.ts';
import { OWN_NETNS } from './pod-source.ts';

/** The proxy itself: POD_NAME, POD_NAMESPACE and SERVICE_ACCOUNT. */
export type OwnPod = Pick<PodInfo, 'name' | 'namespace' | 'serviceAccount'>;

type Place = (info: PodInfo, netnsFd: number) => PlacedPod;

/**
 * Serves tunnels to the proxy itself in its own network namespace (docs/spec/dataplane.md §7.7), so that its metrics can be read
 * through the mesh. The node agent does not know this pod: no session starts or ends it.
 */
export class OwnListener {
  readonly #info: PodInfo;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #place: Place;
  readonly #ending = new AbortController();
  #placed: PlacedPod | null = null;
  #done: Promise<void> = Promise.resolve();

  constructor(
    own: OwnPod,
    { clock, log }: { readonly clock: Clock; readonly log: Logger },
    place: Place,
  ) {
    this.#info = { ...own, uid: `own/${own.namespace}/${own.name}`, own: true };
    this.#clock = clock;
    this.#log = log;
    this.#place = place;
  }

  /** Listens, and tries again when that fails, because a port that is taken may become free. Call it once. */
  start(): void {
    this.#done = this.#serve();
  }

  /** Accepts nothing more; connections may run on until the deadline. Resolves when the pod has ended. */
  drain(deadlineMs: number): Promise<void> {
    return this.#end('graceful', deadlineMs);
  }

  /** Ends the pod now. */
  stop(): Promise<void> {
    return this.#end('immediate', 0);
  }

  #end(mode: 'graceful' | 'immediate', deadlineMs: number): Promise<void> {
    this.#ending.abort();
    this.#placed?.stop(mode, deadlineMs);
    return this.#done;
  }

  async #serve(): Promise<void> {
    const { signal } = this.#ending;
    const backoff = new Backoff(OWN_LISTENER_BACKOFF);
    const netnsFd = openNetns(OWN_NETNS);
    try {
      while (!signal.aborted) {
        const error = await this.#serveOnce(netnsFd);
        if (signal.aborted || error === null) return;
        this.#log.warn({ error: errorText(error) }, 'own-listener.failed');
        await pause(this.#clock, backoff.next(), signal);
      }
    } finally {
      closeFd(netnsFd);
    }
  }

  /** Returns why the pod ended; null when it was stopped. */
  async #serveOnce(netnsFd: number): Promise<unknown> {
    try {
      this.#placed = this.#place(this.#info, netnsFd);
      return await this.#placed.ended;
    } catch (error) {
      return error;
    }
  }
}

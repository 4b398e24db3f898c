import { Backoff } from '../../../lib/clock/backoff.ts';
import { pause } from '../../../lib/clock/clock.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { closeFd, openNetns } from '../../../lib/linux/netns.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { PodInfo } from '../../../workers/listener/protocol.ts';
import { OWN_LISTENER_BACKOFF } from '../limits.ts';
import type { PlacedPod } from '../pool/placed-pod.ts';

/** Who the proxy itself is: POD_NAME, POD_NAMESPACE and SERVICE_ACCOUNT. */
export type OwnPod = Pick<PodInfo, 'name' | 'namespace' | 'serviceAccount'>;

type Place = (info: PodInfo, netnsFd: number) => PlacedPod;

const OWN_NETNS = '/proc/self/ns/net';

/**
 * Serves tunnels to the proxy itself in its own network namespace (docs/spec/dataplane.md §7.7), so that its metrics can be read
 * through the mesh. It is no pod of the node agent's: no session starts or ends it.
 */
export class OwnListener {
  readonly #info: PodInfo | null;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #place: Place;
  readonly #ending = new AbortController();
  #placed: PlacedPod | null = null;
  #done: Promise<void> | null = null;

  /** Does nothing when it is not known who the proxy is. */
  constructor(
    own: OwnPod | null,
    { clock, log }: { readonly clock: Clock; readonly log: Logger },
    place: Place,
  ) {
    const uid = `own/${own?.namespace}/${own?.name}`;
    this.#info = own === null ? null : { ...own, uid, own: true };
    this.#clock = clock;
    this.#log = log;
    this.#place = place;
  }

  /** Begins to listen, again and again where that fails: a port that is taken may become free. Call it once. */
  start(): void {
    if (this.#info !== null) this.#done = this.#serve(this.#info);
  }

  /** Accepts nothing more; what is carried may run on until the deadline. Resolves when it has ended. */
  async drain(deadlineMs: number): Promise<void> {
    await this.#end('graceful', deadlineMs);
  }

  /** Ends it. */
  async stop(): Promise<void> {
    await this.#end('immediate', 0);
  }

  async #end(mode: 'graceful' | 'immediate', deadlineMs: number): Promise<void> {
    this.#ending.abort();
    this.#placed?.stop(mode, deadlineMs);
    await this.#done;
  }

  async #serve(info: PodInfo): Promise<void> {
    const { signal } = this.#ending;
    const backoff = new Backoff(OWN_LISTENER_BACKOFF);
    const netnsFd = openNetns(OWN_NETNS);
    try {
      while (!signal.aborted) {
        const error = await this.#serveOnce(info, netnsFd);
        if (signal.aborted || error === null) return;
        this.#log.warn({ error: errorText(error) }, 'own-listener.failed');
        await pause(this.#clock, backoff.next(), signal);
      }
    } finally {
      closeFd(netnsFd);
    }
  }

  /** Null when it was stopped, else why it ended. */
  async #serveOnce(info: PodInfo, netnsFd: number): Promise<unknown> {
    try {
      this.#placed = this.#place(info, netnsFd);
      return await this.#placed.ended;
    } catch (error) {
      return error;
    }
  }
}

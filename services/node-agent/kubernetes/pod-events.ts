/** Tells people through Events of their pods why those are not in the mesh. */
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import { EVENTS } from '../../../lib/kubernetes/resources.ts';
import { evictOldest } from '../../../lib/collections/evict.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import type { WriteQueue } from '../../../lib/kubernetes/write-queue.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';
import type { PodEvent } from '../pod-guard.ts';
import { EVENT_REPEAT_MS, MAX_EVENT_CHARACTERS, MAX_PODS } from '../limits.ts';

/** Collaborators of {@link PodEvents}. */
export interface PodEventsDeps {
  readonly client: Pick<KubernetesClient, 'create'>;
  readonly writes: WriteQueue;
  readonly clock: Clock;
  readonly node: string;
}

const COMPONENT = 'weft-node-agent';

/**
 * Writes at most one Event for a pod within {@link EVENT_REPEAT_MS}, unless its message differs. While {@link MAX_PODS} writes wait
 * it writes none: the log tells the same, and the pods come and go for as long as the API server takes nothing.
 */
export class PodEvents {
  readonly #deps: PodEventsDeps;
  readonly #last = new Map<string, { readonly message: string; readonly atMs: number }>();

  constructor(deps: PodEventsDeps) {
    this.#deps = deps;
  }

  /** Writes a warning about the pod. */
  warn(pod: PodRecord, reason: PodEvent, text: string): void {
    const { clock, writes } = this.#deps;
    const message = text.slice(0, MAX_EVENT_CHARACTERS);
    const last = this.#last.get(pod.uid);
    const atMs = clock.monotonic();
    if (last?.message === message && atMs - last.atMs < EVENT_REPEAT_MS) return;
    if (writes.size >= MAX_PODS) return;
    this.#last.delete(pod.uid);
    this.#last.set(pod.uid, { message, atMs });
    evictOldest(this.#last, MAX_PODS);
    const time = new Date(clock.now()).toISOString();
    writes.offer(`event/${reason}/${pod.uid}`, (signal) =>
      this.#write(pod, { reason, message, time }, signal),
    );
  }

  async #write(
    { namespace, name, uid }: PodRecord,
    event: { readonly reason: string; readonly message: string; readonly time: string },
    signal: AbortSignal,
  ): Promise<void> {
    const { client, node } = this.#deps;
    const { reason, message, time } = event;
    await client.create(
      resourcePath(EVENTS, { namespace }),
      {
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { generateName: `${name}.`, namespace },
        involvedObject: { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
        type: 'Warning',
        reason,
        message,
        count: 1,
        firstTimestamp: time,
        lastTimestamp: time,
        source: { component: COMPONENT, host: node },
        reportingComponent: COMPONENT,
        reportingInstance: node,
      },
      signal,
    );
  }
}

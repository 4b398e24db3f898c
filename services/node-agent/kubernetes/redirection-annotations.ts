/** Keeps the annotation `ambient.istio.io/redirection` of the node's pods equal to their enrolment. */
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import { PODS } from '../../../lib/kubernetes/resources.ts';
import { ifPresent, isCode } from '../../../lib/kubernetes/status.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import type { WriteQueue } from '../../../lib/kubernetes/write-queue.ts';
import type { KubernetesPod } from './pod.ts';
import { REDIRECTION } from './pod.ts';

/** Collaborators of {@link RedirectionAnnotations}. */
export interface AnnotationDeps {
  readonly client: Pick<KubernetesClient, 'request'>;
  readonly writes: WriteQueue;
  /** The pod as the API server has it; null when it is gone. */
  readonly pod: (uid: string) => KubernetesPod | null;
}

/** Writes differences, and again when somebody else changes the annotation. */
export class RedirectionAnnotations {
  readonly #deps: AnnotationDeps;
  /** The states of the pods that this agent enrols or has enrolled; null = none is to be told. */
  readonly #wanted = new Map<string, 'pending' | 'enabled' | null>();

  constructor(deps: AnnotationDeps) {
    this.#deps = deps;
  }

  /**
   * Sets the state that the annotation tells; null removes it. Where the redirection is `inherited` from an agent before this one,
   * `enabled` stays while no proxy has confirmed the pod: its peers would send to a `pending` pod in plaintext.
   */
  set(uid: string, state: 'pending' | 'enabled' | null, inherited = false): void {
    const pod = this.#deps.pod(uid);
    if (pod === null) {
      this.#wanted.delete(uid);
      return;
    }
    const stays = inherited && state === 'pending' && pod.redirection === 'enabled';
    this.#wanted.set(uid, stays ? 'enabled' : state);
    this.check(pod);
  }

  /** Compares the annotation with the wanted state. A pod that this agent has not looked at yet is left alone. */
  check({ uid, redirection }: KubernetesPod): void {
    const wanted = this.#wanted.get(uid);
    if (wanted === undefined) return;
    if (wanted === redirection) {
      if (wanted === null) this.#wanted.delete(uid);
      return;
    }
    this.#deps.writes.offer(`redirection/${uid}`, (signal) => this.#write(uid, signal));
  }

  async #write(uid: string, signal: AbortSignal): Promise<void> {
    const pod = this.#deps.pod(uid);
    const wanted = this.#wanted.get(uid);
    if (pod === null) this.#wanted.delete(uid);
    if (pod === null || wanted === undefined || wanted === pod.redirection) return;
    const { namespace, name } = pod;
    try {
      await ifPresent(
        this.#deps.client.request({
          method: 'PATCH',
          path: resourcePath(PODS, { namespace, name, subresource: 'status' }),
          contentType: 'application/merge-patch+json',
          // The uid makes it a conflict when another pod has the name by now.
          body: { metadata: { uid, annotations: { [REDIRECTION]: wanted } } },
          signal,
        }),
      );
    } catch (error) {
      // The pod is gone, and another one has its name.
      if (!isCode(error, 'KUBERNETES_CONFLICT')) throw error;
    }
  }
}

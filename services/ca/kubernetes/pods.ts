import type { Clock } from '../../../lib/clock/clock.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { Reflector } from '../../../lib/kubernetes/reflector.ts';
import { PODS } from '../../../lib/kubernetes/resources.ts';
import type { ReflectorMetrics } from '../../../lib/kubernetes/reflection.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { PodTable, parsePod } from '../pods.ts';
import type { FollowedPods, KnownPod } from '../pods.ts';

/** Collaborators of {@link KubernetesPods}. */
export interface KubernetesPodsDeps {
  readonly client: KubernetesClient;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
  readonly metrics: ReflectorMetrics;
}

/** Follows the pods of the API server, each reduced to the few fields that decide grants. The owner closes it. */
export class KubernetesPods implements FollowedPods {
  readonly #table = new PodTable();
  readonly #reflector: Reflector<KnownPod>;

  constructor(deps: KubernetesPodsDeps) {
    this.#reflector = new Reflector<KnownPod>(
      {
        resource: PODS,
        kind: 'Pod',
        // A pod that has failed gives nobody an identity (docs/spec/istiod-ambient.md §4.2, rule 5).
        fieldSelector: 'status.phase!=Failed',
        reduce: parsePod,
        sink: {
          keys: () => this.#table.keys(),
          apply: (changes) => {
            for (const { key, object } of changes) {
              if (object === null) this.#table.removeKey(key);
              else this.#table.put(object);
            }
          },
        },
      },
      deps,
    );
  }

  /** Resolves once all pods are known. */
  first(): Promise<void> {
    return this.#reflector.synced();
  }

  get synced(): boolean {
    return this.#reflector.state === 'synced';
  }

  get connected(): boolean {
    return this.synced && this.#reflector.problem === null;
  }

  get problem(): string | null {
    return this.#reflector.problem;
  }

  /** Begins to follow. Settles when it is closed. */
  run(): Promise<void> {
    return this.#reflector.run();
  }

  close(): Promise<void> {
    return this.#reflector.close();
  }

  runsOnNode(node: string, namespace: string, serviceAccount: string): boolean {
    return this.#table.runsOnNode(node, namespace, serviceAccount);
  }

  find(namespace: string, name: string, uid: string): KnownPod | null {
    return this.#table.find(namespace, name, uid);
  }
}

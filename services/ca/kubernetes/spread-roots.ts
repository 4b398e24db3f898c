import type { ActorContext } from '../../../lib/actor/actor.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { LeaseCandidate, leaseIdentity } from '../../../lib/kubernetes/lease.ts';
import type { ReflectorMetrics } from '../../../lib/kubernetes/reflection.ts';
import { isDiscovered } from '../../../lib/mesh-config/discovery.ts';
import type { AuthoritySource } from '../authority.ts';
import type { FollowedMesh } from '../followed-mesh.ts';
import { SpreadText } from './config-maps.ts';
import type { SpreadOptions } from './config-maps.ts';
import { ROOTS } from './stores.ts';

/** The name of the lease; its holder writes ConfigMaps and rotates the root. */
const LEASE = 'weft-ca';

/** Istio's ConfigMap of revocation lists; written where another authority's files have them. */
const REVOCATIONS = { name: 'istio-ca-crl', key: 'ca-crl.pem' } as const;

/** Collaborators of {@link LeaderWork}. */
export interface LeaderWorkDeps {
  readonly client: KubernetesClient;
  readonly context: Pick<ActorContext, 'clock' | 'log' | 'metrics'>;
  readonly reflectors: ReflectorMetrics;
  readonly namespace: string;
  /** Its discovery selectors tell which namespaces get the texts. */
  readonly mesh: Pick<FollowedMesh, 'current' | 'onChange'>;
}

/** Work of one CA process among all: it keeps roots and revocation lists in every namespace of the mesh. The owner closes it. */
export class LeaderWork {
  readonly #deps: LeaderWorkDeps;
  readonly #candidate: LeaseCandidate;
  #roots: SpreadText | null = null;

  constructor(deps: LeaderWorkDeps) {
    this.#deps = deps;
    const { clock, log, metrics } = deps.context;
    this.#candidate = new LeaseCandidate(
      { namespace: deps.namespace, name: LEASE, identity: leaseIdentity() },
      { client: deps.client, clock, log },
    );
    metrics.gauge('weft_ca_leader', '1 in the process that rotates the root', [], (gauge) =>
      gauge.set(this.leads ? 1 : 0),
    );
    metrics.gauge(
      'weft_ca_foreign_root_maps',
      'Namespaces whose ConfigMap of roots has other roots and belongs to another program; 0 in processes that do not lead',
      [],
      (gauge) => gauge.set(this.#roots?.foreign.length ?? 0),
    );
  }

  /** True in the one process that leads. */
  get leads(): boolean {
    return this.#candidate.held;
  }

  /** Competes for the lease and works while it is held, until it is closed. */
  run(authority: AuthoritySource): Promise<void> {
    return this.#candidate.run((signal) => this.#lead(authority, signal));
  }

  close(): Promise<void> {
    return this.#candidate.close();
  }

  async #lead(authority: AuthoritySource, signal: AbortSignal): Promise<void> {
    const roots = this.#spread(ROOTS, () => authority.current.rootsPem);
    const lists = this.#spread(REVOCATIONS, () => authority.current.crlPem);
    this.#roots = roots;
    const both = [roots, lists];
    const refresh = (): void => both.forEach((text) => text.refresh());
    const unfollow = [authority.onChange(refresh), this.#deps.mesh.onChange(refresh)];
    const close = (): Promise<unknown> => Promise.all(both.map((text) => text.close()));
    signal.addEventListener('abort', () => void close(), { once: true });
    try {
      await Promise.all(both.map((text) => text.run()));
    } finally {
      unfollow.forEach((end) => end());
      this.#roots = null;
      await close();
    }
  }

  #spread(
    place: { readonly name: string; readonly key: string },
    content: () => string | null,
  ): SpreadText {
    const { client, context, reflectors, namespace: system, mesh } = this.#deps;
    const { clock, log } = context;
    const selects: SpreadOptions['selects'] = (namespace, labels) => {
      const { discoverySelectors: selectors, rootNamespace } = mesh.current;
      return isDiscovered(
        { selectors, always: [system, rootNamespace ?? system] },
        namespace,
        labels,
      );
    };
    return new SpreadText({ ...place, selects, content }, { client, clock, log, reflectors });
  }
}

/** The surroundings of the CA: manifests and files, or a Kubernetes API server. */
import type { ActorContext } from '../../lib/actor/actor.ts';
import { TokenVerifier } from '../../lib/identity/token.ts';
import { reflectorMetrics } from '../../lib/kubernetes/reflection.ts';
import { present } from '../../lib/errors/assert.ts';
import type { AuthoritySource } from './authority.ts';
import type { CaConfig } from './config.ts';
import { ControlPlanePods } from './control-plane-pods.ts';
import { KubernetesPods } from './kubernetes/pods.ts';
import { LeaderWork } from './kubernetes/spread-roots.ts';
import { kubernetesStores, namespaceOf, openClient } from './kubernetes/stores.ts';
import { TokenReviews } from '../../lib/identity/token-reviews.ts';
import type { FollowedPods } from './pods.ts';
import { folderStores } from './stores.ts';
import type { CaStores } from './stores.ts';

/** All that a CA takes from its surroundings. */
export interface CaSources {
  readonly stores: CaStores;
  readonly verifier: Pick<TokenVerifier, 'verify'>;
  /** True in the one process that rotates the root. */
  leads(): boolean;
  /** Begins to follow the pods; null when none are configured. */
  followPods(): Promise<FollowedPods | null>;
  /** Begins the work of a leader, which needs the authority. */
  lead(authority: AuthoritySource): void;
}

/** Opens the configured sources; `made` closes them. */
export function openSources(
  config: CaConfig,
  context: ActorContext,
  made: AsyncDisposableStack,
): Promise<CaSources> {
  return config.source === 'kubernetes'
    ? kubernetesSources(config, context, made)
    : Promise.resolve(manifestSources(config, context, made));
}

function manifestSources(
  config: CaConfig,
  context: ActorContext,
  made: AsyncDisposableStack,
): CaSources {
  const { clock, log } = context;
  const jwksPath = present(config.token.jwksPath, 'the configuration demands a key set');
  return {
    stores: folderStores(config, { clock, log }),
    verifier: new TokenVerifier({ ...config.token, jwksPath }, { clock, log }),
    leads: () => true,
    lead: () => undefined,
    async followPods() {
      const { podsSocket, stateDir } = config;
      if (podsSocket === null) {
        log.warn({ effect: 'every request of a node is refused' }, 'pods.not-configured');
        return null;
      }
      const pods = new ControlPlanePods(podsSocket, stateDir, context);
      made.defer(() => pods.close());
      await pods.start();
      context.supervise('pods', pods.done);
      return pods;
    },
  };
}

async function kubernetesSources(
  config: CaConfig,
  context: ActorContext,
  made: AsyncDisposableStack,
): Promise<CaSources> {
  const { clock, log, metrics } = context;
  const client = await openClient(config, { clock, metrics });
  made.defer(() => client.close());
  const reflectors = reflectorMetrics(metrics);
  const leader = new LeaderWork({
    client,
    context,
    reflectors,
    namespace: namespaceOf(config, client),
    namespaceSelector: config.namespaceSelector,
  });
  return {
    stores: await kubernetesStores(config, { client, clock, log }),
    verifier: new TokenReviews(config.token.audiences, { client, clock }),
    leads: () => leader.leads,
    lead(authority) {
      made.defer(() => leader.close());
      context.supervise('leadership', leader.run(authority));
    },
    followPods() {
      const pods = new KubernetesPods({ client, clock, log, metrics: reflectors });
      made.defer(() => pods.close());
      // Before the first list every node would be refused.
      const release = context.readiness.block('pods');
      void pods.first().then(release);
      context.supervise('pods', pods.run());
      return Promise.resolve(pods);
    },
  };
}

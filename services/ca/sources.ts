/** The surroundings of the CA: manifests and files, or a Kubernetes API server. */
import type { ActorContext } from '../../lib/actor/actor.ts';
import { TokenVerifier } from '../../lib/identity/token.ts';
import { MESH_CONFIG_MAP, meshConfigMap } from '../../lib/mesh-config/text.ts';
import { reflectorMetrics } from '../../lib/kubernetes/reflection.ts';
import { present } from '../../lib/errors/assert.ts';
import type { AuthoritySource } from './authority.ts';
import type { CaConfig } from './config.ts';
import { ControlPlanePods } from './control-plane-pods.ts';
import { FollowedMesh } from './followed-mesh.ts';
import { KubernetesPods } from './kubernetes/pods.ts';
import { readText } from './kubernetes/config-maps.ts';
import { followMeshConfigMap } from './kubernetes/mesh-config-map.ts';
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
  readonly mesh: Pick<FollowedMesh, 'current'>;
  /** True in the one process that rotates the root. */
  leads(): boolean;
  /** Begins to follow the pods; null when none are configured. */
  followPods(): Promise<FollowedPods | null>;
  /** Begins the work of a leader, which needs the authority. */
  lead(authority: AuthoritySource): void;
}

/** Opens the configured sources; `made` closes them. */
export async function openSources(
  config: CaConfig,
  context: ActorContext,
  made: AsyncDisposableStack,
): Promise<CaSources> {
  const mesh = new FollowedMesh(config, context);
  made.defer(() => mesh.close());
  await mesh.start();
  return config.source === 'kubernetes'
    ? kubernetesSources(config, context, made, mesh)
    : manifestSources(config, context, made, mesh);
}

function manifestSources(
  config: CaConfig,
  context: ActorContext,
  made: AsyncDisposableStack,
  mesh: FollowedMesh,
): CaSources {
  const { clock, log } = context;
  const jwksPath = present(config.token.jwksPath, 'the configuration demands a key set');
  return {
    stores: folderStores(config, { clock, log }),
    verifier: new TokenVerifier({ ...config.token, jwksPath }, { clock, log }),
    mesh,
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
  mesh: FollowedMesh,
): Promise<CaSources> {
  const { clock, log, metrics } = context;
  const client = await openClient(config, { clock, metrics });
  made.defer(() => client.close());
  const reflectors = reflectorMetrics(metrics);
  const namespace = namespaceOf(config, client);
  if (config.meshConfig === null) {
    const where = meshConfigMap(namespace);
    // No identity is issued before its trust domain is known, and no namespace gets the roots that should not.
    mesh.take(where, await readText(client, namespace, MESH_CONFIG_MAP));
    const followed = followMeshConfigMap(
      namespace,
      { client, clock, log, metrics: reflectors },
      (text) => mesh.take(where, text),
    );
    made.defer(() => followed.close());
    context.supervise('mesh-config', followed.run());
  }
  const leader = new LeaderWork({
    client,
    context,
    reflectors,
    namespace,
    mesh,
  });
  return {
    stores: await kubernetesStores(config, { client, clock, log }),
    verifier: new TokenReviews(config.token.audiences, { client, clock }),
    mesh,
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

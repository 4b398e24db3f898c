/** Answers the supervisor's API for a mesh of containers, as the supervisor of a local mesh does. */
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { lateActors } from '../local-mesh/managed-process.ts';
import type { PodLine, MeshStatus, SupervisorView } from '../local-mesh/supervisor-api.ts';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { redisAnswers } from '../local-mesh/redis.ts';
import { upgradeInTurn } from '../local-mesh/role-processes.ts';
import type { Upgraded } from '../local-mesh/role-processes.ts';
import { meshRoles, roleName } from '../local-mesh/roles.ts';
import type { MeshPlan } from '../local-mesh/topology.ts';
import type { ContainerActors } from './container-actors.ts';
import type { ContainerPods } from './container-pods.ts';
import type { ContainerUpgrade } from './container-upgrade.ts';

/** Parts of a {@link ContainerMesh}. */
export interface ContainerMeshDeps {
  readonly plan: MeshPlan;
  readonly paths: MeshPaths;
  readonly actors: ContainerActors;
  readonly pods: ContainerPods;
  readonly upgrades: ContainerUpgrade;
}

/** Answers for the containers. */
export class ContainerMesh implements SupervisorView {
  readonly #deps: ContainerMeshDeps;

  constructor(deps: ContainerMeshDeps) {
    this.#deps = deps;
  }

  /** The data of `weft status`. */
  async status(): Promise<MeshStatus> {
    const { plan, paths, actors, pods } = this.#deps;
    const statuses = await actors.statuses();
    const redis = await this.#redis();
    const lines = pods.lines();
    const serving = statuses.filter(({ retiring }) => !retiring);
    const absent = meshRoles(plan).filter(
      (role) =>
        !serving.some(
          ({ name, node }) => name === role.actor && node === (role.node?.name ?? null),
        ),
    );
    const waiting = [
      ...(redis.state === 'ready' ? [] : ['redis']),
      ...absent.map(roleName),
      ...lateActors(serving),
      ...lines
        .filter((pod) => pod.ambient && !pod.enrolled)
        .map((pod) => `pod ${pod.namespace}/${pod.name}`),
    ];
    return {
      mesh: plan.mesh,
      runDirectory: paths.root,
      supervisor: { pid: process.pid },
      nodes: await Promise.all(
        plan.nodes.map(async ({ name, link }) => ({
          name,
          netns: await this.#netnsOf(name),
          addresses: [link.ipv4, link.ipv6],
          pods: lines.filter(({ node }) => node === name).length,
        })),
      ),
      actors: statuses,
      redis,
      waypointBypass: await actors.waypointBypass(),
      started: true,
      ready: waiting.length === 0,
      waiting,
    };
  }

  /** The pods that run as containers. */
  pods(): readonly PodLine[] {
    return this.#deps.pods.lines().map(({ enrolled: _enrolled, ...line }) => line);
  }

  /** Throws STATE_CONFLICT: the tool that started the containers stops them. */
  down(): void {
    throw new MeshError('STATE_CONFLICT', 'this mesh runs in containers: docker compose down');
  }

  /** Replaces roles, one after another. */
  upgrade(names: readonly string[], timeoutMs: number): Promise<readonly Upgraded[]> {
    const { plan, upgrades } = this.#deps;
    return upgradeInTurn(names, plan, (role) => upgrades.upgrade(role, timeoutMs));
  }

  async #redis(): Promise<MeshStatus['redis']> {
    const { actors, paths } = this.#deps;
    const seen = await actors.of('redis');
    return {
      pid: seen?.State.Pid ?? null,
      state: (await redisAnswers(paths.redisSocket)) ? 'ready' : 'starting',
      restarts: seen?.RestartCount ?? 0,
      socket: paths.redisSocket,
    };
  }

  async #netnsOf(node: string): Promise<string> {
    const seen = await this.#deps.actors.of(node);
    return seen === null ? '-' : `/proc/${seen.State.Pid}/ns/net`;
  }
}

/** The actors' containers of one Compose project: their roles, their states, and their admin sockets. */
import { mkdir, readdir, rename, rm, symlink } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { Clock } from '../../lib/clock/clock.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { waypointBypass } from '../../lib/state/waypoint-bypass.ts';
import type { WaypointBypass } from '../../lib/state/waypoint-bypass.ts';
import { askState, askToEnd } from '../local-mesh/managed-process.ts';
import type { ProcessStatus } from '../local-mesh/managed-process.ts';
import { adminSocket, instanceSocket } from '../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { meshRoles } from '../local-mesh/roles.ts';
import type { Role } from '../local-mesh/roles.ts';
import type { MeshPlan } from '../local-mesh/topology.ts';
import type { ContainerDetails, ContainerSummary } from '../../lib/docker/engine-view.ts';
import type { Engine } from './engine.ts';
import { serviceName } from './own-files.ts';

/** Labels that Compose gives its containers. */
export const PROJECT_LABEL = 'com.docker.compose.project';
const SERVICE_LABEL = 'com.docker.compose.service';
const NUMBER_LABEL = 'com.docker.compose.container-number';
/** Part of the name of a replaced container that drains. */
export const RETIRED = '-retired-';
/** A proxy's generation. */
export const GROUP_VARIABLE = 'WEFT_NODE_PROXY_GROUP';

/** Dependencies and settings of the lookup. */
export interface ContainerActorsDeps {
  readonly engine: Engine;
  readonly paths: MeshPaths;
  readonly plan: MeshPlan;
  readonly project: string;
  readonly clock: Clock;
  readonly log: Logger;
}

/** An actor's container. */
export type ActorContainer = ReturnType<typeof actorContainer>;

/** Looks actors up. */
export class ContainerActors {
  readonly #deps: ContainerActorsDeps;
  readonly #links = new Map<string, string>();

  constructor(deps: ContainerActorsDeps) {
    this.#deps = deps;
  }

  /** Every container of a role, ended ones included, the oldest first. */
  async containers(): Promise<readonly ActorContainer[]> {
    const { plan } = this.#deps;
    const byService = new Map(meshRoles(plan).map((role) => [serviceName(role), role]));
    const all = await this.#deps.engine.list(true);
    return all
      .filter(({ Labels }) => Labels?.[PROJECT_LABEL] === this.#deps.project)
      .toSorted((left, right) => left.Created - right.Created)
      .flatMap((container) => {
        const role = byService.get(container.Labels?.[SERVICE_LABEL] ?? '');
        return role === undefined ? [] : [actorContainer(role, container)];
      });
  }

  /** The container of another service; null when it has none. */
  async of(service: string): Promise<ContainerDetails | null> {
    const { engine, project } = this.#deps;
    const found = (await engine.list()).find(
      ({ Labels }) => Labels?.[PROJECT_LABEL] === project && Labels[SERVICE_LABEL] === service,
    );
    return found === undefined ? null : engine.inspect(found.Id);
  }

  /**
   * Links the admin sockets of the run directory into the containers, through the processes' roots: one link for each
   * container, and the role's standing link to the newest container that is not retired.
   */
  async link(): Promise<void> {
    const { paths, engine } = this.#deps;
    await mkdir(paths.adminDir, { recursive: true, mode: 0o700 });
    const wanted = new Map<string, string>();
    for (const { id, role, number, retired, running } of await this.containers()) {
      if (!running) continue;
      const node = role.node?.name ?? null;
      const standing = adminSocket(paths, role.actor, node);
      const target = this.#socketOf(role, await engine.inspect(id));
      wanted.set(instanceSocket(paths, role.actor, node, number), target);
      if (!retired) wanted.set(standing, target);
    }
    for (const [link, target] of wanted) await this.#point(link, target);
    for (const file of await readdir(paths.adminDir)) {
      const link = join(paths.adminDir, file);
      if (wanted.has(link)) continue;
      await rm(link, { force: true });
      this.#links.delete(link);
    }
  }

  /** The status of each actor. */
  async statuses(): Promise<readonly ProcessStatus[]> {
    const containers = await this.containers();
    return Promise.all(containers.map((container) => this.status(container)));
  }

  /** The status of one container. */
  async status(container: ActorContainer): Promise<ProcessStatus> {
    const { engine, clock } = this.#deps;
    const { role, retired } = container;
    const seen = await engine.inspect(container.id);
    const up = seen.State.Running ? clock.now() - Date.parse(seen.State.StartedAt) : 0;
    return {
      name: role.actor,
      node: role.node?.name ?? null,
      pid: seen.State.Running ? seen.State.Pid : null,
      restarts: seen.RestartCount,
      uptimeSeconds: Math.max(0, Math.floor(up / 1_000)),
      generation: groupOf(seen) + 1,
      retiring: retired,
      ...(retired ? ({ state: 'draining', pending: [] } as const) : await this.#asked(role, seen)),
    };
  }

  /** How the node proxies treat traffic that went around a waypoint: `allow` if one of them lets it in. Null while none runs. */
  async waypointBypass(): Promise<WaypointBypass | null> {
    const proxies = (await this.containers()).filter(
      ({ role, running, retired }) => role.actor === 'node-proxy' && running && !retired,
    );
    const treatments = await Promise.all(
      proxies.map(async ({ id }) => {
        const own = environmentOf(await this.#deps.engine.inspect(id));
        const explicit = own['WEFT_WAYPOINT_BYPASS'];
        // The actors refuse any values but these.
        return waypointBypass({
          WEFT_XDS_CONTROL_PLANE: own['WEFT_XDS_CONTROL_PLANE'] === 'weft' ? 'weft' : 'istio',
          WEFT_WAYPOINT_BYPASS: explicit === 'deny' || explicit === 'allow' ? explicit : null,
        });
      }),
    );
    if (treatments.length === 0) return null;
    return treatments.includes('allow') ? 'allow' : 'deny';
  }

  /** Tells an actor's container to drain without a time limit; false when its actor does not answer. */
  async drainUnbounded({ role }: ActorContainer, details: ContainerDetails): Promise<boolean> {
    return askToEnd(this.#socketOf(role, details), true, this.#deps.log);
  }

  /** The admin socket as this process sees it. */
  #socketOf({ actor, node }: Role, { State }: ContainerDetails): string {
    return join(
      `/proc/${State.Pid}/root`,
      adminSocket(this.#deps.paths, actor, node?.name ?? null),
    );
  }

  async #asked(
    role: Role,
    details: ContainerDetails,
  ): Promise<Pick<ProcessStatus, 'state' | 'pending'>> {
    if (!details.State.Running) return { state: 'backoff', pending: ['restart'] };
    try {
      return await askState(this.#socketOf(role, details));
    } catch {
      // The container is starting or ending.
      return { state: 'starting', pending: ['admin'] };
    }
  }

  async #point(link: string, target: string): Promise<void> {
    if (this.#links.get(link) === target) return;
    const next = `${link}.next`;
    await rm(next, { force: true });
    await symlink(target, next);
    await rename(next, link);
    this.#links.set(link, target);
  }
}

/** A container's variables. Skips a name without a value, which Compose passes for an unset variable. */
export function environmentOf({ Config }: ContainerDetails): Readonly<Record<string, string>> {
  const lines = Array.isArray(Config['Env']) ? (Config['Env'] as string[]) : [];
  return Object.fromEntries(
    lines.flatMap((line) => {
      const at = line.indexOf('=');
      return at < 0 ? [] : [[line.slice(0, at), line.slice(at + 1)] as const];
    }),
  );
}

/** The generation of a proxy's container. */
export function groupOf(details: ContainerDetails): number {
  return Number(environmentOf(details)[GROUP_VARIABLE] ?? 0);
}

function actorContainer(role: Role, container: ContainerSummary) {
  const name = basename(container.Names[0] ?? '');
  return {
    role,
    id: container.Id,
    name,
    number: Number(container.Labels?.[NUMBER_LABEL] ?? 1),
    retired: name.includes(RETIRED),
    running: container.State === 'running',
  };
}

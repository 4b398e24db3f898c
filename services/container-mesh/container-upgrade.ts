/** `weft upgrade` for containers: starts new ones from the service's current image, then ends the old ones. */
import { randomBytes } from 'node:crypto';
import type { Clock } from '../../lib/clock/clock.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { SIDE_BY_SIDE, drainDeadlineOf } from '../local-mesh/actor-process.ts';
import { untilReady } from '../local-mesh/role-processes.ts';
import type { Upgraded } from '../local-mesh/role-processes.ts';
import { roleName, sameRole } from '../local-mesh/roles.ts';
import type { Role } from '../local-mesh/roles.ts';
import { RETIRED, environmentOf, groupOf } from './container-actors.ts';
import type { ActorContainer, ContainerActors } from './container-actors.ts';
import type { Engine } from './engine.ts';
import { replacementOf } from './replacement.ts';

/** Dependencies of an upgrade. */
export interface ContainerUpgradeDeps {
  readonly engine: Engine;
  readonly actors: ContainerActors;
  readonly clock: Clock;
  readonly log: Logger;
}

interface New {
  readonly id: string;
  readonly name: string;
}

/** Replaces roles, one at a time. */
export class ContainerUpgrade {
  readonly #deps: ContainerUpgradeDeps;
  #busy = false;

  constructor(deps: ContainerUpgradeDeps) {
    this.#deps = deps;
  }

  /**
   * Replaces the containers of a role. Rejects with STATE_CONFLICT while another upgrade runs or when the role has no
   * container, and with ACTOR_DEADLINE when the new ones are not ready in time; the old ones then continue.
   */
  async upgrade(role: Role, timeoutMs: number): Promise<Upgraded> {
    if (this.#busy) throw new MeshError('STATE_CONFLICT', 'another upgrade is under way');
    this.#busy = true;
    try {
      const all = (await this.#deps.actors.containers()).filter((one) => sameRole(one.role, role));
      const old = all.filter(({ retired }) => !retired);
      if (old.length === 0) {
        throw new MeshError('STATE_CONFLICT', `there is no container of ${roleName(role)}`);
      }
      const beside = SIDE_BY_SIDE.has(role.actor);
      const made = beside
        ? await this.#beside(old, all, timeoutMs)
        : await this.#after(old, timeoutMs);
      await this.#deps.actors.link();
      return await this.#upgraded(role, made);
    } finally {
      this.#busy = false;
    }
  }

  /** Removes replaced containers once they have ended. */
  async sweep(): Promise<void> {
    for (const one of await this.#deps.actors.containers()) {
      if (!one.retired) continue;
      if (one.running) await this.#retire(one);
      else await this.#deps.engine.remove(one.id);
    }
  }

  async #beside(
    old: readonly ActorContainer[],
    all: readonly ActorContainer[],
    timeoutMs: number,
  ): Promise<readonly New[]> {
    const { engine, log } = this.#deps;
    const seen = await Promise.all(old.map(({ id }) => engine.inspect(id)));
    const group = Math.max(...seen.map(groupOf)) + 1;
    const made: New[] = [];
    try {
      for (const one of old) made.push(await this.#make(one, nextNumber(all, made.length), group));
      await Promise.all(made.map(({ id }) => engine.start(id)));
      await this.#untilReady(made, old, timeoutMs);
    } catch (error) {
      log.error({ error: errorText(error) }, 'upgrade.given-up');
      for (const { id } of made) await engine.remove(id);
      throw error;
    }
    for (const one of old) {
      await engine.rename(one.id, retiredName(one.name));
      await this.#retire(one);
    }
    return made;
  }

  /** Ends the old one first, as both need the same address or files. Restarts it when the new one is not ready in time. */
  async #after(old: readonly ActorContainer[], timeoutMs: number): Promise<readonly New[]> {
    const { engine, log } = this.#deps;
    const made: New[] = [];
    for (const one of old) {
      await engine.stop(one.id);
      await engine.rename(one.id, retiredName(one.name));
      try {
        const next = await this.#make(one, one.number, null, one.name);
        made.push(next);
        await engine.start(next.id);
        await this.#untilReady([next], old, timeoutMs);
      } catch (error) {
        log.error({ error: errorText(error) }, 'upgrade.given-up');
        for (const { id } of made.splice(-1)) await engine.remove(id);
        await engine.rename(one.id, one.name);
        await engine.start(one.id);
        throw error;
      }
      await engine.remove(one.id);
    }
    return made;
  }

  async #make(
    old: ActorContainer,
    number: number,
    group: number | null,
    name = old.name.replace(/\d+$/, String(number)),
  ): Promise<New> {
    const { engine } = this.#deps;
    const seen = await engine.inspect(old.id);
    const body = replacementOf(seen, {
      image: await engine.imageConfig(seen.Image),
      number,
      group: old.role.actor === 'node-proxy' ? group : null,
    });
    return { id: await engine.create(name, body), name };
  }

  /** Tells a container to drain and end; resolves once it was told. Leaves one that was told before as it is. */
  async #retire(one: ActorContainer): Promise<void> {
    const { actors, engine, log } = this.#deps;
    const { id, role } = one;
    const seen = await engine.inspect(id);
    if (drainDeadlineOf(role.actor, environmentOf(seen)) === null) {
      await engine.leaveEnded(id);
      await actors.drainUnbounded(one, seen);
    }
    engine
      .stop(id)
      .then(() => engine.remove(id))
      .then(
        () => log.info({ container: id.slice(0, 12) }, 'container.retired'),
        (error: unknown) =>
          log.warn(
            { container: id.slice(0, 12), error: errorText(error) },
            'container.not-retired',
          ),
      );
  }

  #untilReady(
    made: readonly New[],
    old: readonly ActorContainer[],
    timeoutMs: number,
  ): Promise<void> {
    const { actors, clock } = this.#deps;
    const [{ role }] = old as readonly [ActorContainer];
    return untilReady({ clock, role: roleName(role), timeoutMs }, async () => ({
      statuses: await Promise.all(
        made.map(({ id, name }) =>
          actors.status({ role, id, name, number: 0, retired: false, running: true }),
        ),
      ),
      hopeless: false,
    }));
  }

  async #upgraded(role: Role, made: readonly New[]): Promise<Upgraded> {
    const { actors, engine } = this.#deps;
    const own = (await actors.containers()).filter((one) => sameRole(one.role, role));
    const statuses = await Promise.all(own.map((one) => actors.status(one)));
    const first = present(own[0], 'it was just replaced');
    const env = environmentOf(await engine.inspect(first.id));
    const serving = statuses.filter(({ retiring }) => !retiring);
    const pids = (list: typeof statuses): number[] =>
      list.flatMap(({ pid }) => (pid === null ? [] : [pid]));
    return {
      role: roleName(role),
      generation: Math.max(
        made.length === 0 ? 1 : 0,
        ...serving.map(({ generation }) => generation),
      ),
      pids: pids(serving),
      draining: pids(statuses.filter(({ retiring }) => retiring)),
      drainDeadlineMs: drainDeadlineOf(role.actor, env),
    };
  }
}

/** A name that no container of the service has, retired ones included. */
function nextNumber(all: readonly ActorContainer[], offset: number): number {
  return Math.max(...all.map(({ number }) => number)) + 1 + offset;
}

function retiredName(name: string): string {
  return `${name}${RETIRED}${randomBytes(4).toString('hex')}`;
}

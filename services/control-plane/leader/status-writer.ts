/** Writes the mapping's conditions into the status of objects. */
import type { Clock } from '../../../lib/clock/clock.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { apiVersionOf, resourcePath } from '../../../lib/kubernetes/resource.ts';
import type { ResourceType } from '../../../lib/kubernetes/resource.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import type { WriteQueue } from '../../../lib/kubernetes/write-queue.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { keyOf, kindResources, nameOf } from '../manifests/kinds.ts';
import type { Kind, KubeObject, ObjectName } from '../manifests/kinds.ts';
import { OWNED_CONDITIONS } from '../mapping/object-status.ts';
import type { MeshMap } from '../mapping/mesh-map.ts';
import type { ObjectSource } from '../sources/object-source.ts';
import { conditionsToWrite } from './conditions.ts';
import type { WrittenCondition } from './conditions.ts';

/** Owns the written conditions. Addresses have a manager of their own, because a manager replaces all of its fields at once. */
const FIELD_MANAGER = 'weft-status';

/** Collaborators of the leader's writers. */
export interface LeaderDeps {
  readonly source: ObjectSource;
  readonly client: KubernetesClient;
  readonly writes: WriteQueue;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'warn'>;
}

/** Keeps the conditions as the mapping has them, while it runs. */
export class StatusWriter {
  readonly #deps: LeaderDeps;
  readonly #map: MeshMap;
  /** Objects whose conditions belong to another writer; each is logged once. */
  readonly #foreign = new Set<string>();

  constructor(map: MeshMap, deps: LeaderDeps) {
    this.#map = map;
    this.#deps = deps;
  }

  /** Writes what differs now and from now on. The result ends that. */
  start(): () => void {
    const { source } = this.#deps;
    const endings = [
      this.#map.onStatus(({ kind, namespace, name }) =>
        this.#look(source.objects.object(kind, namespace, name)),
      ),
      source.onCommit((changes) => {
        for (const { before, after } of changes) {
          if (after === null && before !== null) this.#foreign.delete(keyOf(before));
          // A new object has no conditions until the next refresh; those that it brings must wait for them.
          if (after !== null && this.#map.status(keyOf(after)) !== null) this.#look(after);
        }
      }),
    ];
    for (const kind of Object.keys(OWNED_CONDITIONS) as Kind[]) {
      for (const object of source.objects.ofKind(kind)) this.#look(object);
    }
    return () => {
      for (const end of endings) end();
    };
  }

  #look(object: KubeObject | undefined): void {
    if (object === undefined || this.#decide(object) === null) return;
    const name = nameOf(object);
    this.#deps.writes.offer(`status ${keyOf(object)}`, (signal) => this.#write(name, signal));
  }

  #decide(object: KubeObject): WrittenCondition[] | null {
    const owned = OWNED_CONDITIONS[object.kind];
    if (owned === undefined) return null;
    const desired = this.#map.status(keyOf(object));
    // Conditions of an older form would be right about nothing; the next refresh brings the new ones.
    if (desired !== null && desired.generation !== (object.metadata.generation ?? null))
      return null;
    const now = new Date(this.#deps.clock.now()).toISOString().replace(/\.\d+Z$/, 'Z');
    return conditionsToWrite(desired, presentConditions(object), owned, now);
  }

  /** Writes by what is known at this moment, which may be newer than what made it necessary. */
  async #write(name: ObjectName, signal: AbortSignal): Promise<void> {
    const { source, client, log } = this.#deps;
    const object = source.objects.object(name.kind, name.namespace, name.name);
    const conditions = object === undefined ? null : this.#decide(object);
    if (object === undefined || conditions === null) return;
    const key = keyOf(object);
    const { group, version, plural, namespaced } = kindResources[name.kind];
    const type: ResourceType = { group, versions: [version], plural, namespaced };
    try {
      await client.apply(
        resourcePath(type, { ...placeOf(name), subresource: 'status' }),
        {
          apiVersion: apiVersionOf(type),
          kind: name.kind,
          metadata: placeOf(name),
          ...(conditions.length === 0 ? {} : { status: { conditions } }),
        },
        { fieldManager: FIELD_MANAGER, signal },
      );
      this.#foreign.delete(key);
    } catch (error) {
      if (isCode(error, 'KUBERNETES_NOT_FOUND')) return;
      if (!isCode(error, 'KUBERNETES_CONFLICT')) throw error;
      if (this.#foreign.has(key)) return;
      this.#foreign.add(key);
      log.warn({ object: key, problem: error.message }, 'status.owned-by-another');
    }
  }
}

function placeOf({ namespace, name }: ObjectName): { name: string; namespace?: string } {
  return namespace === '' ? { name } : { name, namespace };
}

function presentConditions(object: KubeObject): readonly Partial<WrittenCondition>[] {
  const { status } = object as { readonly status?: { readonly conditions?: unknown } };
  return Array.isArray(status?.conditions)
    ? (status.conditions as readonly Partial<WrittenCondition>[])
    : [];
}

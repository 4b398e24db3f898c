/**
 * Maps the objects of the mesh to resources and status conditions, and keeps them up to date. A change computes only what it
 * concerns (docs/decisions/derived-collections.md).
 */
import { inSlices } from '../../../lib/async/time-slice.ts';
import type { Keyed } from '../../../lib/derived/keyed.ts';
import type { Source } from '../../../lib/derived/source.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import type { ResourceType } from '../../../lib/xds/type-urls.ts';
import { SLICE_MS } from '../limits.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import type { Kind, KubeObject, ObjectName } from '../manifests/kinds.ts';
import type { ObjectChange } from '../store/object-store.ts';
import { MeshBase } from './mesh-base.ts';
import type { MeshConfig } from './mesh-config.ts';
import { MeshPolicies } from './mesh-policies.ts';
import { MeshServices } from './mesh-services.ts';
import { meshStatuses } from './mesh-statuses.ts';
import { MeshWorkloads } from './mesh-workloads.ts';
import type { ObjectStatus } from './object-status.ts';
import { nameKey } from './objects.ts';
import type { MappedResource } from './resource.ts';
import type { MeshSettings } from './settings.ts';

/** Names of changed and removed resources, by type. */
export type ChangedNames = ReadonlyMap<ResourceType, ReadonlySet<string>>;

/** Told of an object whose status changed. */
export type StatusListener = (object: ObjectName) => void;

/** Told of an object that cannot be mapped; the result of its last form stays. */
export type MappingFailure = (key: string, error: unknown) => void;

/** Holds the resources of the whole mesh. */
export class MeshMap {
  readonly #base: MeshBase;
  /** Noted changes until the next refresh, by kind and {@link nameKey}; undefined removes. */
  #noted = new Map<Kind, Map<string, KubeObject | undefined>>();
  readonly #resources = new Map<ResourceType, Map<string, MappedResource>>([
    [ADDRESS_TYPE, new Map()],
    [AUTHORIZATION_TYPE, new Map()],
  ]);
  readonly #statuses = new Map<string, ObjectStatus>();
  readonly #statusListeners = new Set<StatusListener>();
  /** The versions that resources had before the running refresh; null where there was none. */
  readonly #before = new Map<ResourceType, Map<string, string | null>>();

  #config: MeshConfig | null = null;

  constructor(settings: MeshSettings, failed: MappingFailure) {
    this.#base = new MeshBase(settings, failed);
    const services = new MeshServices(this.#base);
    const policies = new MeshPolicies(this.#base);
    const workloads = new MeshWorkloads(this.#base, services, policies);
    const single = [services.resources, ...workloads.single, ...policies.resources];
    for (const collection of single) {
      collection.onChange((_key, before, after) =>
        this.#replace(before === undefined ? [] : [before], after === undefined ? [] : [after]),
      );
    }
    for (const collection of [services.entryResources, ...workloads.several]) {
      collection.onChange((_key, before = [], after = []) => this.#replace(before, after));
    }
    for (const statuses of meshStatuses(this.#base, services, policies, workloads)) {
      this.#follow(statuses);
    }
  }

  /** Number of computations so far. */
  get computed(): number {
    return this.#base.graph.computed;
  }

  /** Notes changed objects. They count from the next {@link refresh} on. */
  note(changes: readonly ObjectChange[]): void {
    for (const { before, after } of changes) {
      const object = after ?? before;
      if (object === null) continue;
      let noted = this.#noted.get(object.kind);
      if (noted === undefined) this.#noted.set(object.kind, (noted = new Map()));
      const key = nameKey(object.kind, namespaceOf(object), object.metadata.name);
      noted.set(key, after ?? undefined);
    }
  }

  /** Replaces the MeshConfig; null for a mesh without one. It counts from the next {@link refresh} on. */
  configure(config: MeshConfig | null): void {
    this.#config = config;
  }

  /**
   * Brings the resources up to date with the noted changes, in slices of the event loop. Changes that are noted meanwhile wait
   * for the next refresh, so that the result belongs to one state. Only one refresh may run at a time. Returns the names of
   * the changed resources.
   */
  refresh(): Promise<ChangedNames> {
    return inSlices(this.steps(), SLICE_MS);
  }

  /** The steps of {@link refresh}. */
  *steps(): Generator<void, ChangedNames> {
    this.#base.config.set('', this.#config ?? undefined);
    const noted = this.#noted;
    this.#noted = new Map();
    this.#before.clear();
    for (const [kind, objects] of noted) {
      const source = this.#base.objects[kind] as Source<unknown>;
      for (const [key, object] of objects) {
        source.set(key, object);
        yield;
      }
    }
    yield* this.#base.graph.settle();
    return yield* this.#changed();
  }

  /** A resource as of the last refresh. */
  get(type: string, name: string): MappedResource | undefined {
    return this.#resources.get(type as ResourceType)?.get(name);
  }

  /** The resources of a type as of the last refresh. */
  of(type: ResourceType): ReadonlyMap<string, MappedResource> {
    return this.#resources.get(type) ?? new Map<string, MappedResource>();
  }

  /** The status of an object, by `Kind/namespace/name`. */
  status(key: string): ObjectStatus | null {
    return this.#statuses.get(key) ?? null;
  }

  /** Every status. */
  statuses(): Iterable<ObjectStatus> {
    return this.#statuses.values();
  }

  /** Calls `listener` with each changed status, during a refresh. The result unsubscribes. */
  onStatus(listener: StatusListener): () => void {
    this.#statusListeners.add(listener);
    return () => this.#statusListeners.delete(listener);
  }

  #follow(statuses: Keyed<ObjectStatus>): void {
    statuses.onChange((_key, before, after) => {
      const known = after ?? before;
      if (known === undefined) return;
      const key = `${known.kind}/${known.namespace}/${known.name}`;
      if (after === undefined) this.#statuses.delete(key);
      else this.#statuses.set(key, after);
      for (const listener of this.#statusListeners) listener(known);
    });
  }

  #replace(before: readonly MappedResource[], after: readonly MappedResource[]): void {
    const kept = new Set(after.map(({ name }) => name));
    for (const old of before) {
      // Another object may hold the name by now.
      if (kept.has(old.name) || this.get(old.type, old.name) !== old) continue;
      this.#touch(old);
      this.#resources.get(old.type)?.delete(old.name);
    }
    for (const resource of after) {
      this.#touch(resource);
      this.#resources.get(resource.type)?.set(resource.name, resource);
    }
  }

  #touch({ type, name }: MappedResource): void {
    let versions = this.#before.get(type);
    if (versions === undefined) {
      versions = new Map();
      this.#before.set(type, versions);
    }
    if (!versions.has(name)) versions.set(name, this.get(type, name)?.version ?? null);
  }

  *#changed(): Generator<void, ChangedNames> {
    const changed = new Map<ResourceType, Set<string>>();
    for (const [type, versions] of this.#before) {
      const names = new Set<string>();
      for (const [name, version] of versions) {
        if ((this.get(type, name)?.version ?? null) !== version) names.add(name);
        yield;
      }
      if (names.size > 0) changed.set(type, names);
    }
    this.#before.clear();
    return changed;
  }
}

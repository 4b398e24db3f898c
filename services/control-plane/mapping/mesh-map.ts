/** Maps the whole mesh to resources, and updates them namespace by namespace. */
import type { ResourceType } from '../../../lib/xds/type-urls.ts';
import { byAge, namespaceOf } from '../manifests/kinds.ts';
import type {
  AuthorizationPolicy,
  KubeObject,
  PeerAuthentication,
  Pod,
} from '../manifests/kinds.ts';
import { peerAuthenticationLevels, staticStrictPolicy } from '../policy/peer-authentication.ts';
import type { ObjectChange } from '../store/object-store.ts';
import type { CommittedState } from '../store/state.ts';
import { NamespaceMap } from './namespace-map.ts';
import type { NamespaceSurroundings } from './namespace-map.ts';
import { authorizationResource } from './resource.ts';
import { ResourceIndex } from './resource-index.ts';
import type { MappedResource } from './resource.ts';
import { serviceEntryTargets } from './service-entry.ts';
import type { ServiceTarget } from './service-target.ts';
import type { MeshSettings } from './settings.ts';

/** Names of changed and removed resources, by type. */
export type ChangedNames = ReadonlyMap<ResourceType, ReadonlySet<string>>;

const NETWORK_LABEL = 'topology.istio.io/network';

/** Holds the resources of all namespaces. */
export class MeshMap {
  readonly #state: CommittedState;
  readonly #settings: MeshSettings;
  /** The resources as of the last {@link refresh}. */
  readonly index = new ResourceIndex();
  /** The resources of each namespace by id, as of the last refresh. */
  readonly #contributed = new Map<string, Map<string, MappedResource>>();
  readonly #maps = new Map<string, NamespaceMap>();
  /** Namespaces to map again; true when more than their pods changed. */
  readonly #dirty = new Map<string, boolean>();
  #allDirty = true;

  constructor(state: CommittedState, settings: MeshSettings) {
    this.#state = state;
    this.#settings = settings;
  }

  /** Notes the namespaces that a commit may have changed. */
  note(changes: readonly ObjectChange[]): void {
    for (const { before, after } of changes) {
      const object = after ?? before;
      if (object !== null) this.#noteObject(object, before, after);
    }
  }

  /** Updates the resources from the state. Returns the names of the changed ones. */
  refresh(): ChangedNames {
    const changed = new Map<ResourceType, Set<string>>();
    const namespaces = this.#allDirty ? this.#everyNamespace() : [...this.#dirty.keys()];
    const all = this.#allDirty;
    const shared = this.#shared();
    for (const namespace of namespaces) {
      if (all || this.#dirty.get(namespace) === true) this.#maps.delete(namespace);
      this.#replace(namespace, this.#map(namespace, shared), changed);
    }
    this.#allDirty = false;
    this.#dirty.clear();
    return changed;
  }

  #noteObject(object: KubeObject, before: KubeObject | null, after: KubeObject | null): void {
    const root = this.#settings.policies.rootNamespace;
    const namespace = object.kind === 'Namespace' ? object.metadata.name : namespaceOf(object);
    const known = this.#dirty.get(namespace) ?? false;
    this.#dirty.set(namespace, known || object.kind !== 'Pod');
    switch (object.kind) {
      case 'Namespace':
        if (namespace === root) this.#allDirty = true;
        return;
      case 'AuthorizationPolicy':
        if (namespace === root && (hasSelector(before) || hasSelector(after))) {
          this.#allDirty = true;
        }
        return;
      case 'PeerAuthentication':
        if (namespace === root) this.#allDirty = true;
        // The root namespace holds the static policy while any PeerAuthentication exists.
        else this.#dirty.set(root, true);
        return;
      case 'Service':
      case 'ServiceEntry':
        this.#noteHosts();
        return;
      default:
    }
  }

  /** Marks the namespaces of all ServiceEntries: a new or removed host may change which claim to a host counts. */
  #noteHosts(): void {
    for (const entry of this.#state.ofKind('ServiceEntry')) {
      this.#dirty.set(namespaceOf(entry), true);
    }
  }

  #everyNamespace(): string[] {
    const names = new Set([...this.#contributed.keys(), ...this.#dirty.keys()]);
    for (const namespace of this.#state.ofKind('Namespace')) names.add(namespace.metadata.name);
    return [...names];
  }

  #map(namespace: string, shared: Shared): MappedResource[] {
    const pods: Pod[] = [];
    const others: KubeObject[] = [];
    for (const { object } of this.#state.inNamespace(namespace)) {
      if (object.kind === 'Pod') pods.push(object);
      else others.push(object);
    }
    let map = this.#maps.get(namespace);
    if (map === undefined) {
      const around = this.#surroundings(namespace, others, shared);
      map = new NamespaceMap(
        { namespace: this.#state.object('Namespace', '', namespace), others },
        around,
      );
      this.#maps.set(namespace, map);
    }
    const resources = map.resources(pods);
    const root = this.#settings.policies.rootNamespace;
    if (namespace === root && shared.anyPeerAuthentication()) {
      resources.push(authorizationResource(staticStrictPolicy(root)));
    }
    return resources;
  }

  #surroundings(
    namespace: string,
    others: readonly KubeObject[],
    shared: Shared,
  ): NamespaceSurroundings {
    const root = this.#settings.policies.rootNamespace;
    const own = others.filter((object) => object.kind === 'PeerAuthentication');
    return {
      settings: this.#settings,
      network: this.#state.object('Namespace', '', root)?.metadata.labels?.[NETWORK_LABEL] ?? '',
      rootPolicies: namespace === root ? [] : shared.rootPolicies(),
      levels: peerAuthenticationLevels(namespace, own, shared.rootPeers(), root),
      isCanonical: (target) => shared.canonicalNamespace(target) === target.service.namespace,
    };
  }

  /** Facts that several namespaces need, computed at most once per refresh. */
  #shared(): Shared {
    const root = this.#settings.policies.rootNamespace;
    const inRoot = lazily(() => [...this.#state.inNamespace(root)].map(({ object }) => object));
    const winners = lazily(() => this.#hostWinners());
    return {
      rootPolicies: () =>
        inRoot().filter(
          (object): object is AuthorizationPolicy =>
            object.kind === 'AuthorizationPolicy' && hasSelector(object),
        ),
      rootPeers: () =>
        inRoot().filter(
          (object): object is PeerAuthentication => object.kind === 'PeerAuthentication',
        ),
      anyPeerAuthentication: () => {
        for (const _ of this.#state.ofKind('PeerAuthentication')) return true;
        return false;
      },
      canonicalNamespace: (target) => winners().get(target.service.hostname) ?? null,
    };
  }

  /** The namespace whose claim counts, by host of the entries: a Service's, else the oldest public entry's. */
  #hostWinners(): Map<string, string> {
    const winners = new Map<string, string>();
    const entries = [...this.#state.ofKind('ServiceEntry')].toSorted(byAge);
    for (const entry of entries) {
      for (const { service } of serviceEntryTargets(entry, '')) {
        const isPublic = service.visibility === 'PUBLIC';
        if (isPublic && !winners.has(service.hostname)) {
          winners.set(service.hostname, service.namespace);
        }
      }
    }
    for (const hostname of winners.keys()) {
      const [name = '', namespace = '', ...rest] = hostname.split('.');
      if (rest.join('.') !== `svc.${this.#settings.domain}`) continue;
      if (this.#state.object('Service', namespace, name) !== undefined) {
        winners.set(hostname, namespace);
      }
    }
    return winners;
  }

  #replace(
    namespace: string,
    resources: readonly MappedResource[],
    changed: Map<ResourceType, Set<string>>,
  ): void {
    const before = this.#contributed.get(namespace) ?? new Map<string, MappedResource>();
    const after = new Map(resources.map((item) => [`${item.type} ${item.name}`, item]));
    for (const [id, item] of before) {
      if (after.has(id)) continue;
      this.index.delete(item.type, item.name);
      markChanged(changed, item);
    }
    for (const [id, item] of after) {
      const old = before.get(id);
      if (old === item) continue;
      this.index.set(item);
      if (old?.version !== item.version) markChanged(changed, item);
    }
    if (after.size === 0) {
      this.#contributed.delete(namespace);
      this.#maps.delete(namespace);
    } else {
      this.#contributed.set(namespace, after);
    }
  }
}

interface Shared {
  rootPolicies(): readonly AuthorizationPolicy[];
  rootPeers(): readonly PeerAuthentication[];
  anyPeerAuthentication(): boolean;
  canonicalNamespace(target: ServiceTarget): string | null;
}

function markChanged(changed: Map<ResourceType, Set<string>>, item: MappedResource): void {
  const names = changed.get(item.type);
  if (names === undefined) changed.set(item.type, new Set([item.name]));
  else names.add(item.name);
}

function hasSelector(object: KubeObject | null): boolean {
  return object?.kind === 'AuthorizationPolicy' && object.spec.selector !== undefined;
}

function lazily<T extends object>(make: () => T): () => T {
  let value: T | null = null;
  return () => (value ??= make());
}

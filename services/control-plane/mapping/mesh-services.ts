/** The collections of services: of Services and ServiceEntries, their hosts, and their waypoints. */
import { isDeepStrictEqual } from 'node:util';
import type { Index, Keyed } from '../../../lib/derived/keyed.ts';
import { Mapped } from '../../../lib/derived/mapped.ts';
import type { Reading } from '../../../lib/derived/reading.ts';
import type { KubeService, ServiceEntry } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { compareText } from '../../../lib/collections/compare.ts';
import { HostClaims } from './host-claims.ts';
import { kubeServiceTarget } from './kube-service.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import { bindable } from './mesh-base.ts';
import type { MeshBase } from './mesh-base.ts';
import { sameResource, sameResources, serviceResource } from './resource.ts';
import type { MappedResource } from './resource.ts';
import { labelIndexValues, selectorIndexValue } from './selectors.ts';
import { entryVisibilityOf, serviceEntryTargets } from './service-entry.ts';
import { protocolsOf, targets } from './service-target.ts';
import type { ServiceTarget } from './service-target.ts';
import { UNBOUND, bindService } from './waypoint-binding.ts';
import type { Binding } from './waypoint-binding.ts';

/** Services, with who holds which host. */
export class MeshServices {
  /** The target of each Service. */
  readonly targets: Mapped<KubeService, ServiceTarget>;
  readonly bindings: Mapped<KubeService, Binding>;
  readonly entryBindings: Mapped<ServiceEntry, Binding>;
  readonly resources: Keyed<MappedResource>;
  readonly entryResources: Keyed<readonly MappedResource[]>;
  readonly #entries: Mapped<ServiceEntry, readonly ServiceTarget[]>;
  readonly #selecting: Index<ServiceTarget>;
  readonly #entriesSelecting: Index<readonly ServiceTarget[]>;
  readonly #claims: HostClaims;

  constructor(base: MeshBase) {
    const { graph, objects } = base;
    this.targets = new Mapped(
      graph,
      objects.Service,
      (reading, service) => {
        const facts = base.namespace(reading, namespaceOf(service));
        return facts.discovered ? kubeServiceTarget(service, facts, base.mesh(reading)) : undefined;
      },
      isDeepStrictEqual,
    );
    this.#entries = new Mapped<ServiceEntry, readonly ServiceTarget[]>(
      graph,
      objects.ServiceEntry,
      (reading, entry) => {
        const facts = base.namespace(reading, namespaceOf(entry));
        if (!facts.discovered) return undefined;
        const found = serviceEntryTargets(entry, facts, base.mesh(reading));
        return found.length === 0 ? undefined : found;
      },
      isDeepStrictEqual,
    );
    this.#selecting = this.targets.index((target) => selectorValues([target]));
    this.#entriesSelecting = this.#entries.index(selectorValues);
    this.#claims = new HostClaims(graph, this.targets, this.#entries);
    this.bindings = new Mapped(
      graph,
      objects.Service,
      (reading, service) =>
        reading.get(this.targets, ownerKey(service)) === undefined
          ? undefined
          : bindService(
              bindable(namespaceOf(service), service.metadata),
              false,
              base.bindingSources(reading, namespaceOf(service)),
            ),
      isDeepStrictEqual,
    );
    this.entryBindings = new Mapped(
      graph,
      objects.ServiceEntry,
      (reading, entry) => {
        if (reading.get(this.#entries, ownerKey(entry)) === undefined) return undefined;
        const sources = base.bindingSources(reading, namespaceOf(entry));
        const visibility = entryVisibilityOf(entry, sources.facts, base.mesh(reading));
        const object = bindable(namespaceOf(entry), entry.metadata);
        return bindService(object, visibility === 'NAMESPACE', sources);
      },
      isDeepStrictEqual,
    );
    this.resources = new Mapped(
      graph,
      this.targets,
      (reading, target, key) => boundResource(target, true, reading.get(this.bindings, key)),
      sameResource,
    );
    this.entryResources = new Mapped<ServiceEntry, readonly MappedResource[]>(
      graph,
      objects.ServiceEntry,
      (reading, entry) => {
        const binding = reading.get(this.entryBindings, ownerKey(entry));
        return this.heldBy(reading, entry).map((target) =>
          boundResource(target, this.#claims.isCanonical(reading, target), binding),
        );
      },
      sameResources,
    );
  }

  /** The services that select a workload of the namespace with these labels, in the order of their keys. */
  selecting(reading: Reading, namespace: string, labels: Labels): ServiceTarget[] {
    const found: ServiceTarget[] = [];
    for (const value of labelIndexValues(namespace, labels)) {
      for (const target of reading.list(this.#selecting, value)) {
        if (targets(target, labels)) found.push(target);
      }
      for (const list of reading.list(this.#entriesSelecting, value)) {
        for (const target of list) {
          if (targets(target, labels) && this.#claims.isHeld(reading, target)) found.push(target);
        }
      }
    }
    return found.sort((left, right) => compareText(left.key, right.key));
  }

  /** The hosts of an entry that no other object of its namespace holds. */
  heldBy(reading: Reading, entry: ServiceEntry): ServiceTarget[] {
    const all = reading.get(this.#entries, ownerKey(entry)) ?? [];
    return all.filter((target) => this.#claims.isHeld(reading, target));
  }

  /** The binding of a Service or ServiceEntry; undefined for an object that is not served. */
  bindingOf(reading: Reading, kind: ServiceTarget['kind'], key: string): Binding | undefined {
    return kind === 'Service'
      ? reading.get(this.bindings, key)
      : reading.get(this.entryBindings, key);
  }
}

function ownerKey(object: KubeService | ServiceEntry): string {
  return `${namespaceOf(object)}/${object.metadata.name}`;
}

function selectorValues(list: readonly ServiceTarget[]): string[] {
  return list.flatMap(({ selector, service }) =>
    selector === null ? [] : [selectorIndexValue(service.namespace, selector)],
  );
}

function boundResource(
  target: ServiceTarget,
  canonical: boolean,
  binding: Binding = UNBOUND,
): MappedResource {
  return serviceResource(
    {
      ...target.service,
      canonical,
      waypoint: binding.waypoint?.address ?? null,
      weightedWaypoints: binding.weighted,
    },
    protocolsOf([target]),
    binding.ingress === true,
  );
}

/** Maps one namespace to resources. Pure, apart from a cache of unchanged pods. */
import type { AppProtocols } from '../../../lib/xds/resources/fields.ts';
import type { Authorization } from '../../../lib/policy/model.ts';
import { byAge } from '../manifests/kinds.ts';
import type {
  AuthorizationPolicy,
  KubeObject,
  NamespaceObject,
  PeerAuthentication,
  Pod,
  ServiceEntry,
  WorkloadEntry,
} from '../manifests/kinds.ts';
import { convertPolicy, selects } from '../policy/authorization-policy.ts';
import {
  convertedPeerAuthentication,
  peerAuthenticationKey,
} from '../policy/peer-authentication.ts';
import type { PeerAuthenticationLevels } from '../policy/peer-authentication.ts';
import { externalWorkload, workloadEntryLabels } from './external-workload.ts';
import type { WorkloadContext } from './external-workload.ts';
import { kubeServiceTarget } from './kube-service.ts';
import type { Labels } from './labels.ts';
import { podWorkload } from './pod.ts';
import { authorizationResource, serviceResource, workloadResource } from './resource.ts';
import type { MappedResource } from './resource.ts';
import { serviceEntryTargets, serviceEntryWorkloads } from './service-entry.ts';
import type { MeshSettings } from './settings.ts';
import { endpointPorts, targets } from './service-target.ts';
import type { ServiceTarget } from './service-target.ts';

/** The objects of one namespace, by kind. */
export interface NamespaceObjects {
  readonly namespace: NamespaceObject | undefined;
  readonly pods: readonly Pod[];
  readonly others: readonly KubeObject[];
}

/** The facts outside of a namespace that its resources depend on. */
export interface NamespaceSurroundings {
  readonly settings: MeshSettings;
  readonly network: string;
  /** Policies of the root namespace with a selector. */
  readonly rootPolicies: readonly AuthorizationPolicy[];
  readonly levels: PeerAuthenticationLevels;
  /** True when this ServiceEntry's claim to the host counts mesh-wide. */
  isCanonical(target: ServiceTarget): boolean;
}

/** Compiles a namespace's services and policies once, and applies them to each of its workloads. */
export class NamespaceMap {
  readonly #context: WorkloadContext;
  readonly #services: readonly ServiceTarget[];
  readonly #protocols: AppProtocols;
  readonly #fixed: readonly MappedResource[];
  readonly #pods = new WeakMap<Pod, MappedResource | { readonly type: null }>();

  constructor(objects: Omit<NamespaceObjects, 'pods'>, around: NamespaceSurroundings) {
    const policies = ofKind(objects.others, 'AuthorizationPolicy');
    const entries = ofKind(objects.others, 'ServiceEntry').toSorted(byAge);
    this.#context = {
      settings: around.settings,
      network: around.network,
      policiesFor: policyLister([...policies, ...around.rootPolicies], around),
    };
    const targetsOf = new Map(
      entries.map((entry) => [entry, serviceEntryTargets(entry, around.network)]),
    );
    this.#services = distinct([
      ...ofKind(objects.others, 'Service')
        .map((service) =>
          kubeServiceTarget(service, objects.namespace, {
            domain: around.settings.domain,
            network: around.network,
          }),
        )
        .filter((target) => target !== null),
      ...[...targetsOf.values()].flat(),
    ]);
    this.#protocols = protocolsOf(this.#services);
    this.#fixed = [
      ...this.#services.map((target) => this.#serviceResource(target, around)),
      ...policiesOf(policies, ofKind(objects.others, 'PeerAuthentication'), around),
      ...ofKind(objects.others, 'WorkloadEntry').map((entry) => this.#entryResource(entry)),
      ...entries.flatMap((entry) => this.#endpointResources(entry, targetsOf.get(entry) ?? [])),
    ];
  }

  /** The namespace's resources with these pods. Known pods are not mapped again. */
  resources(pods: Iterable<Pod>): MappedResource[] {
    const all = [...this.#fixed];
    for (const pod of pods) {
      let known = this.#pods.get(pod);
      if (known === undefined) {
        const workload = podWorkload(pod, this.#services, this.#context);
        known = workload === null ? { type: null } : workloadResource(workload, this.#protocols);
        this.#pods.set(pod, known);
      }
      if (known.type !== null) all.push(known);
    }
    return all;
  }

  #serviceResource(target: ServiceTarget, around: NamespaceSurroundings): MappedResource {
    const canonical = target.kind === 'Service' || around.isCanonical(target);
    return serviceResource({ ...target.service, canonical }, this.#protocols);
  }

  #entryResource(entry: WorkloadEntry): MappedResource {
    const labels = workloadEntryLabels(entry);
    const services = Object.fromEntries(
      this.#services
        .filter((target) => targets(target, labels))
        .map((target) => [target.key, endpointPorts(target, entry.spec.ports)]),
    );
    const workload = externalWorkload(entry, entry.spec, this.#context, {
      uidKind: 'WorkloadEntry',
      services,
    });
    return workloadResource(workload, this.#protocols);
  }

  #endpointResources(entry: ServiceEntry, own: readonly ServiceTarget[]): MappedResource[] {
    // The entry does not serve a host that another object of the namespace holds.
    const held = own.filter((target) => this.#services.includes(target));
    // An entry that serves no host has no endpoints: it is exported to nobody or is a duplicate.
    if (held.length === 0) return [];
    return serviceEntryWorkloads(entry, held, this.#context).map((workload) =>
      workloadResource(workload, this.#protocols),
    );
  }
}

/** The keys of the policies that a workload lists (docs/spec/istiod-ambient.md §2.4), without policies that are not sent. */
function policyLister(
  policies: readonly AuthorizationPolicy[],
  around: NamespaceSurroundings,
): (labels: Labels) => readonly string[] {
  const listed = policies.flatMap((policy) => {
    const { selector } = policy.spec;
    const { authorization } = convertPolicy(policy, around.settings.policies);
    if (selector === undefined || authorization === null) return [];
    return [{ selector, key: `${authorization.namespace}/${authorization.name}` }];
  });
  return (labels) => {
    const keys = listed.filter(({ selector }) => selects(selector, labels)).map(({ key }) => key);
    const peer = peerAuthenticationKey(labels, around.levels);
    return [...new Set(peer === null ? keys : [...keys, peer])].sort();
  };
}

function policiesOf(
  policies: readonly AuthorizationPolicy[],
  peers: readonly PeerAuthentication[],
  around: NamespaceSurroundings,
): MappedResource[] {
  const converted: (Authorization | null)[] = [
    ...policies.map((policy) => convertPolicy(policy, around.settings.policies).authorization),
    ...peers
      .filter((peer) => around.levels.workload.includes(peer))
      .map((peer) => convertedPeerAuthentication(peer, around.levels)),
  ];
  return converted.filter((policy) => policy !== null).map(authorizationResource);
}

/** The first target of each host: Services come before entries, and older entries before younger. */
function distinct(all: readonly ServiceTarget[]): ServiceTarget[] {
  const byKey = new Map<string, ServiceTarget>();
  for (const target of all) if (!byKey.has(target.key)) byKey.set(target.key, target);
  return [...byKey.values()];
}

function protocolsOf(services: readonly ServiceTarget[]): AppProtocols {
  const byKey = new Map(
    services.map((target) => [
      target.key,
      new Map(target.ports.map((port) => [port.servicePort, port.appProtocol])),
    ]),
  );
  return (key, servicePort) => byKey.get(key)?.get(servicePort) ?? 'UNKNOWN';
}

function ofKind<K extends KubeObject['kind']>(
  objects: readonly KubeObject[],
  kind: K,
): Extract<KubeObject, { kind: K }>[] {
  return objects.filter(
    (object): object is Extract<KubeObject, { kind: K }> => object.kind === kind,
  );
}

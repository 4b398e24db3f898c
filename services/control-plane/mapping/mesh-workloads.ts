/** The collections of workloads: of pods, WorkloadEntries, inline endpoints, EndpointSlices and network gateways. */
import { isDeepStrictEqual } from 'node:util';
import type { Keyed } from '../../../lib/derived/keyed.ts';
import { Mapped } from '../../../lib/derived/mapped.ts';
import type { Reading } from '../../../lib/derived/reading.ts';
import type { Workload } from '../../../lib/state/model.ts';
import type { KubeNode, Pod, ServiceEntry, WorkloadEntry } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { sliceWorkloads } from './endpoint-slice.ts';
import type { SliceEndpoints } from './endpoint-slice.ts';
import { externalWorkload, workloadEntryLabels } from './external-workload.ts';
import type { WorkloadContext } from './external-workload.ts';
import type { Mesh } from './mesh.ts';
import type { MeshBase } from './mesh-base.ts';
import type { MeshPolicies } from './mesh-policies.ts';
import type { MeshServices } from './mesh-services.ts';
import { gatewayWorkload } from './network-gateway.ts';
import type { NetworkGateway } from './network-gateway.ts';
import { podWorkload } from './pod.ts';
import { sameResource, sameResources, workloadResource } from './resource.ts';
import type { MappedResource } from './resource.ts';
import { serviceEntryWorkloads } from './service-entry.ts';
import { endpointPorts, protocolsOf } from './service-target.ts';
import type { ServiceTarget } from './service-target.ts';
import { ServiceSlices } from './service-slices.ts';
import { WorkloadClasses, attachment } from './workload-class.ts';
import type { WorkloadClass } from './workload-class.ts';
import type { Binding } from './waypoint-binding.ts';

type Locality = Workload['locality'];

const NOWHERE: Locality = { region: '', zone: '', subzone: '' };

/** Workloads, with the facts that they read. */
export class MeshWorkloads {
  /** The workloads of pods and WorkloadEntries, one for each object. */
  readonly single: readonly Keyed<MappedResource>[];
  /** The workloads of the other objects. */
  readonly several: readonly Keyed<readonly MappedResource[]>[];
  readonly entryBindings: Mapped<WorkloadEntry, Binding>;
  readonly #base: MeshBase;
  readonly #services: MeshServices;
  readonly #policies: MeshPolicies;
  readonly #classes: WorkloadClasses;
  readonly #localities: Mapped<KubeNode, Locality>;
  readonly #slices: ServiceSlices;

  constructor(base: MeshBase, services: MeshServices, policies: MeshPolicies) {
    const { graph, objects } = base;
    this.#base = base;
    this.#services = services;
    this.#policies = policies;
    this.#localities = new Mapped(
      graph,
      objects.Node,
      (_reading, node) => localityOf(node),
      isDeepStrictEqual,
    );
    this.#slices = new ServiceSlices(base, services);
    this.#classes = new WorkloadClasses(base, services, policies);
    this.entryBindings = new Mapped(
      graph,
      objects.WorkloadEntry,
      (reading, entry) =>
        this.#classes.of(reading, namespaceOf(entry), workloadEntryLabels(entry)).binding,
      isDeepStrictEqual,
    );
    const pods = new Mapped(graph, objects.Pod, (r, pod) => this.#pod(r, pod), sameResource);
    const entries = new Mapped(
      graph,
      objects.WorkloadEntry,
      (reading, entry) => this.#entry(reading, entry),
      sameResource,
    );
    const inline = new Mapped<ServiceEntry, readonly MappedResource[]>(
      graph,
      objects.ServiceEntry,
      (reading, entry) => this.#inline(reading, entry),
      sameResources,
    );
    const bare = new Mapped<SliceEndpoints, readonly MappedResource[]>(
      graph,
      this.#slices.endpoints,
      (reading, slice) => bareResources(slice, base.mesh(reading)),
      sameResources,
    );
    const gateways = gatewayResources(base);
    this.single = [pods, entries];
    this.several = [inline, bare, gateways];
  }

  #pod(reading: Reading, pod: Pod): MappedResource | undefined {
    const namespace = namespaceOf(pod);
    const shared = this.#classes.of(reading, namespace, pod.metadata.labels);
    if (!shared.discovered) return undefined;
    const named = this.#slices.naming(reading, pod);
    const targets =
      named.length === 0 ? shared.targets : [...new Set([...shared.targets, ...named])];
    const node = pod.spec.nodeName ?? '';
    const workload = podWorkload(pod, {
      mesh: shared.mesh,
      targets,
      policies: this.#allPolicies(reading, shared, targets),
      ...attachmentOf(shared),
      networkGateway: shared.networkGateway,
      locality: (node === '' ? undefined : reading.get(this.#localities, node)) ?? NOWHERE,
    });
    return workload === null ? undefined : workloadResource(workload, protocolsOf(targets));
  }

  #entry(reading: Reading, entry: WorkloadEntry): MappedResource | undefined {
    const labels = workloadEntryLabels(entry);
    const shared = this.#classes.of(reading, namespaceOf(entry), labels);
    if (!shared.discovered) return undefined;
    const workload = externalWorkload(
      entry,
      entry.spec,
      this.#context(reading, shared, shared.targets, () => attachmentOf(shared)),
      {
        uidKind: 'WorkloadEntry',
        services: Object.fromEntries(
          shared.targets.map((target) => [target.key, endpointPorts(target, entry.spec.ports)]),
        ),
        bindingLabels: labels,
      },
    );
    return workloadResource(workload, protocolsOf(shared.targets));
  }

  #inline(reading: Reading, entry: ServiceEntry): readonly MappedResource[] | undefined {
    const own = this.#services.heldBy(reading, entry);
    // An entry that serves no host has no endpoints: it is exported to nobody or is a duplicate.
    if (own.length === 0) return undefined;
    const namespace = namespaceOf(entry);
    const shared = this.#classes.of(reading, namespace, entry.metadata.labels);
    const context = this.#context(reading, shared, own, (labels) =>
      attachmentOf(attachment(this.#base, reading, namespace, labels)),
    );
    return serviceEntryWorkloads(entry, own, context).map((workload) =>
      workloadResource(workload, protocolsOf(own)),
    );
  }

  #context(
    reading: Reading,
    shared: WorkloadClass,
    targets: readonly ServiceTarget[],
    attachmentOf: WorkloadContext['attachmentOf'],
  ): WorkloadContext {
    return {
      mesh: shared.mesh,
      policies: this.#allPolicies(reading, shared, targets),
      gatewayOf: (network) => this.#base.gatewayOf(reading, network),
      attachmentOf,
    };
  }

  #allPolicies(
    reading: Reading,
    shared: WorkloadClass,
    targets: readonly ServiceTarget[],
  ): readonly string[] {
    if (shared.mesh.allowFromWaypoint !== true) return shared.policies;
    const waypoints = targets.map(
      ({ kind, owner }) => this.#services.bindingOf(reading, kind, owner)?.waypoint?.key ?? null,
    );
    const own = shared.binding.waypoint?.key ?? null;
    const added = this.#policies.ofWaypoints(reading, [...waypoints, own]);
    return added.length === 0 ? shared.policies : [...shared.policies, ...added].sort();
  }
}

function attachmentOf({
  binding,
  applicationTunnel,
}: Pick<WorkloadClass, 'binding' | 'applicationTunnel'>): Pick<
  Workload,
  'waypoint' | 'applicationTunnel'
> {
  return { waypoint: binding.waypoint?.address ?? null, applicationTunnel };
}

function bareResources(slice: SliceEndpoints, mesh: Mesh): readonly MappedResource[] {
  return sliceWorkloads(slice, mesh).map((workload) =>
    workloadResource(workload, protocolsOf([slice.target])),
  );
}

function gatewayResources(base: MeshBase): Keyed<readonly MappedResource[]> {
  const byUid = base.gateways.index((list) => list.map(({ uid }) => uid));
  return new Mapped<readonly NetworkGateway[], readonly MappedResource[]>(
    base.graph,
    base.gateways,
    (reading, list) =>
      list
        // Two Gateways with one address are one workload, which the first of them holds.
        .filter(({ uid }) => reading.list(byUid, uid)[0] === list)
        .map((gateway) =>
          workloadResource(gatewayWorkload(gateway, base.mesh(reading)), protocolsOf([])),
        ),
    sameResources,
  );
}

/** The place of a node; undefined when its labels name none. */
function localityOf(node: KubeNode): Locality | undefined {
  const labels = node.metadata.labels ?? {};
  const region = labels['topology.kubernetes.io/region'] ?? '';
  const zone = labels['topology.kubernetes.io/zone'] ?? '';
  const subzone = labels['topology.istio.io/subzone'] ?? '';
  return region === '' && zone === '' && subzone === '' ? undefined : { region, zone, subzone };
}

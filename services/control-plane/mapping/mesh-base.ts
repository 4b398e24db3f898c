/** The collections that every other one reads: mesh, namespaces, waypoints and network gateways. */
import { Graph } from '../../../lib/derived/graph.ts';
import type { Index } from '../../../lib/derived/keyed.ts';
import { Mapped } from '../../../lib/derived/mapped.ts';
import { Memo } from '../../../lib/derived/memo.ts';
import type { Reading } from '../../../lib/derived/reading.ts';
import { Source } from '../../../lib/derived/source.ts';
import { isDeepStrictEqual } from 'node:util';
import { present } from '../../../lib/errors/assert.ts';
import type { GatewayAddress } from '../../../lib/state/model.ts';
import type { Gateway } from '../manifests/kinds.ts';
import { NETWORK_LABEL } from './labels.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import { meshOf } from './mesh.ts';
import type { Mesh } from './mesh.ts';
import type { MeshConfig } from './mesh-config.ts';
import { namespaceFacts } from './namespace-facts.ts';
import type { NamespaceFacts } from './namespace-facts.ts';
import { gatewayAddress, networkGateways } from './network-gateway.ts';
import type { NetworkGateway } from './network-gateway.ts';
import { objectSources } from './objects.ts';
import type { ObjectSources } from './objects.ts';
import type { MeshSettings } from './settings.ts';
import { waypointOf } from './waypoint.ts';
import type { Waypoint } from './waypoint.ts';
import type { Bindable, BindingSources } from './waypoint-binding.ts';

const NOTHING: Labels = {};

/** The base of a mesh's collections. */
export class MeshBase {
  readonly graph: Graph;
  readonly objects: ObjectSources;
  /** The MeshConfig, under the empty key; absent without one. */
  readonly config: Source<MeshConfig>;
  readonly waypoints: Mapped<Gateway, Waypoint>;
  readonly gateways: Mapped<Gateway, readonly NetworkGateway[]>;
  readonly #mesh: Memo<Mesh>;
  readonly #namespaces: Memo<NamespaceFacts>;
  readonly #byNetwork: Index<readonly NetworkGateway[]>;

  constructor(settings: MeshSettings, failed: (key: string, error: unknown) => void) {
    const graph = new Graph(failed);
    this.graph = graph;
    this.objects = objectSources(graph);
    this.config = new Source<MeshConfig>(graph);
    const system = settings.policies.rootNamespace;
    this.#mesh = new Memo(graph, (reading) => {
      const labels = reading.get(this.objects.Namespace, system)?.metadata.labels;
      return meshOf(settings, reading.get(this.config, '') ?? {}, labels?.[NETWORK_LABEL] ?? '');
    });
    this.#namespaces = new Memo(graph, (reading, name) =>
      namespaceFacts(this.mesh(reading), name, reading.get(this.objects.Namespace, name), system),
    );
    this.waypoints = new Mapped(
      graph,
      this.objects.Gateway,
      (reading, gateway) =>
        waypointOf(
          gateway,
          reading.get(this.objects.GatewayClass, gateway.spec.gatewayClassName),
          this.mesh(reading).network,
        ),
      isDeepStrictEqual,
    );
    this.gateways = new Mapped(
      graph,
      this.objects.Gateway,
      (_reading, gateway) => networkGateways(gateway),
      isDeepStrictEqual,
    );
    this.#byNetwork = this.gateways.index((list) => list.slice(0, 1).map(({ network }) => network));
  }

  /** The settings in force. */
  mesh(reading: Reading): Mesh {
    return present(reading.get(this.#mesh, ''), 'the mesh is always computed');
  }

  /** The facts of a namespace. */
  namespace(reading: Reading, name: string): NamespaceFacts {
    return present(reading.get(this.#namespaces, name), 'facts are always computed');
  }

  /** The gateway of a network; null without one. */
  gatewayOf(reading: Reading, network: string): GatewayAddress | null {
    if (network === '') return null;
    const first = reading.list(this.#byNetwork, network)[0]?.[0];
    return first === undefined ? null : gatewayAddress(first);
  }

  /** The facts that the binding of an object of a namespace depends on. */
  bindingSources(reading: Reading, namespace: string): BindingSources {
    return {
      facts: this.namespace(reading, namespace),
      waypoint: (key) => reading.get(this.waypoints, key),
    };
  }
}

/** The part of an object that may name a waypoint. */
export function bindable(
  namespace: string,
  metadata: { readonly labels?: Labels | undefined; readonly annotations?: Labels | undefined },
): Bindable {
  return {
    namespace,
    labels: metadata.labels ?? NOTHING,
    annotations: metadata.annotations ?? NOTHING,
  };
}

/**
 * The facts that workloads with equal labels in one namespace share. A mesh has few such classes, so that services and policies
 * are matched once for all pods of a Deployment.
 */
import { Memo } from '../../../lib/derived/memo.ts';
import type { Reading } from '../../../lib/derived/reading.ts';
import { present } from '../../../lib/errors/assert.ts';
import type { GatewayAddress, Workload } from '../../../lib/state/model.ts';
import { compareText } from '../../../lib/collections/compare.ts';
import { GATEWAY_LABEL } from './labels.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import { bindable } from './mesh-base.ts';
import type { MeshBase } from './mesh-base.ts';
import type { Mesh } from './mesh.ts';
import type { MeshPolicies } from './mesh-policies.ts';
import type { MeshServices } from './mesh-services.ts';
import type { ServiceTarget } from './service-target.ts';
import { UNBOUND, bindWorkload } from './waypoint-binding.ts';
import type { Binding } from './waypoint-binding.ts';

/** The facts of one class. */
export interface WorkloadClass {
  readonly mesh: Mesh;
  /** False when the mesh leaves the namespace out. */
  readonly discovered: boolean;
  /** The services that select the labels, in the order of their keys. */
  readonly targets: readonly ServiceTarget[];
  /** The policies that a workload lists, without those of waypoints, sorted. */
  readonly policies: readonly string[];
  readonly binding: Binding;
  readonly applicationTunnel: Workload['applicationTunnel'];
  readonly networkGateway: GatewayAddress | null;
}

/** The classes, computed when a workload needs them. */
export class WorkloadClasses {
  readonly #classes: Memo<WorkloadClass>;

  constructor(base: MeshBase, services: MeshServices, policies: MeshPolicies) {
    this.#classes = new Memo<WorkloadClass>(base.graph, (reading, key) => {
      const { namespace, labels } = parseKey(key);
      const mesh = base.mesh(reading);
      return {
        mesh,
        discovered: base.namespace(reading, namespace).discovered,
        targets: services.selecting(reading, namespace, labels),
        policies: policies.listed(reading, namespace, labels),
        ...attachment(base, reading, namespace, labels),
        networkGateway: base.gatewayOf(reading, mesh.network),
      };
    });
  }

  /** The class of a workload. */
  of(reading: Reading, namespace: string, labels: Labels | undefined): WorkloadClass {
    const found = reading.get(this.#classes, classKey(namespace, labels ?? {}));
    return present(found, `the class of a workload in ${namespace} is computed`);
  }
}

/** How a workload with these labels is attached to waypoints. An instance of a waypoint uses none itself. */
export function attachment(
  base: MeshBase,
  reading: Reading,
  namespace: string,
  labels: Labels,
): Pick<WorkloadClass, 'binding' | 'applicationTunnel'> {
  const gateway = labels[GATEWAY_LABEL] ?? '';
  const instance =
    gateway === '' ? undefined : reading.get(base.waypoints, `${namespace}/${gateway}`);
  if (instance !== undefined) return { binding: UNBOUND, applicationTunnel: instance.inbound };
  const sources = base.bindingSources(reading, namespace);
  return {
    binding: bindWorkload(bindable(namespace, { labels }), sources),
    applicationTunnel: null,
  };
}

/** Names and values of labels hold neither of the separators. */
function classKey(namespace: string, labels: Labels): string {
  const names = Object.keys(labels).sort(compareText);
  let key = namespace;
  for (const name of names) key += `\n${name}=${labels[name] ?? ''}`;
  return key;
}

function parseKey(key: string): { namespace: string; labels: Labels } {
  const [namespace = '', ...lines] = key.split('\n');
  const labels: Record<string, string> = {};
  for (const line of lines) {
    const sign = line.indexOf('=');
    labels[line.slice(0, sign)] = line.slice(sign + 1);
  }
  return { namespace, labels };
}

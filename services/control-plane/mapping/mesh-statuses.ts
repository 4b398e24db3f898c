/** The collections of status conditions. */
import { isDeepStrictEqual } from 'node:util';
import type { Keyed } from '../../../lib/derived/keyed.ts';
import { Mapped } from '../../../lib/derived/mapped.ts';
import type { Reading } from '../../../lib/derived/reading.ts';
import type { AuthorizationPolicy, KubeObject } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import { targetsOf } from '../policy/authorization-policy.ts';
import type { MeshBase } from './mesh-base.ts';
import type { MeshPolicies } from './mesh-policies.ts';
import type { MeshServices } from './mesh-services.ts';
import type { MeshWorkloads } from './mesh-workloads.ts';
import {
  bindingConditions,
  missingWaypoint,
  policyCondition,
  targetsCondition,
  visibilityCondition,
} from './object-status.ts';
import type { ObjectStatus, StatusCondition, TargetStatus } from './object-status.ts';
import { entryVisibilityOf } from './service-entry.ts';
import { UNBOUND } from './waypoint-binding.ts';
import type { Binding } from './waypoint-binding.ts';

type Target = ReturnType<typeof targetsOf>[number];

const WAYPOINT_CONTROLLER = 'istio.io/mesh-controller';

/** The statuses of each kind that has conditions. */
export function meshStatuses(
  base: MeshBase,
  services: MeshServices,
  policies: MeshPolicies,
  workloads: MeshWorkloads,
): readonly Keyed<ObjectStatus>[] {
  const { graph, objects } = base;
  const followed = <O extends KubeObject>(
    source: Keyed<O>,
    conditionsOf: (reading: Reading, object: O, key: string) => readonly StatusCondition[],
  ): Keyed<ObjectStatus> =>
    new Mapped(
      graph,
      source,
      (reading, object, key) => statusOf(object, conditionsOf(reading, object, key)),
      isDeepStrictEqual,
    );
  return [
    followed(objects.Service, bound(services.bindings)),
    followed(objects.ServiceEntry, (reading, entry, key) => {
      const mesh = base.mesh(reading);
      const facts = base.namespace(reading, namespaceOf(entry));
      if (!facts.discovered) return [];
      const binding = reading.get(services.entryBindings, key) ?? UNBOUND;
      const isRuled = mesh.entryVisibility !== null && mesh.entryVisibility !== undefined;
      return [
        ...bindingConditions(binding),
        ...missingWaypoint(entry.spec.hosts, binding),
        ...(isRuled ? [visibilityCondition(entryVisibilityOf(entry, facts, mesh))] : []),
      ];
    }),
    followed(objects.WorkloadEntry, bound(workloads.entryBindings)),
    followed(objects.AuthorizationPolicy, (reading, policy, key) => {
      const converted = reading.get(policies.converted, key);
      if (converted === undefined) return [];
      const targets = targetsOf(policy);
      return [
        targets.length === 0 || converted.status.at === 'ztunnel'
          ? policyCondition(converted.status)
          : targetsCondition(
              targets.map((target) => targetStatus(base, services, reading, policy, target)),
            ),
      ];
    }),
  ];
}

function bound(bindings: Keyed<Binding>) {
  return (reading: Reading, _object: KubeObject, key: string): readonly StatusCondition[] =>
    bindingConditions(reading.get(bindings, key) ?? UNBOUND);
}

function statusOf(
  object: KubeObject,
  conditions: readonly StatusCondition[],
): ObjectStatus | undefined {
  if (conditions.length === 0) return undefined;
  return {
    kind: object.kind,
    namespace: namespaceOf(object),
    name: object.metadata.name,
    generation: object.metadata.generation ?? null,
    conditions,
  };
}

function targetStatus(
  base: MeshBase,
  services: MeshServices,
  reading: Reading,
  policy: AuthorizationPolicy,
  target: Target,
): TargetStatus {
  const namespace = target.namespace ?? namespaceOf(policy);
  const key = `${namespace}/${target.name}`;
  const group = target.group === undefined || target.group === '' ? 'core' : target.group;
  const name = `${target.kind}.${group}:${key}`;
  const refused = (reason: TargetStatus['reason'], message: string): TargetStatus => ({
    target: name,
    bound: false,
    reason,
    message,
  });
  const accepted = (to: string): TargetStatus => ({
    target: name,
    bound: true,
    reason: 'Accepted',
    message: `bound to ${to}`,
  });
  switch (target.kind) {
    case 'GatewayClass': {
      const root = base.mesh(reading).policies.rootNamespace;
      if (namespace !== root) {
        return refused('Invalid', `a policy for a GatewayClass must be in namespace ${root}`);
      }
      const found = reading.get(base.objects.GatewayClass, target.name);
      if (found === undefined) {
        return refused('TargetNotFound', `there is no GatewayClass ${target.name}`);
      }
      return found.spec.controllerName === WAYPOINT_CONTROLLER
        ? accepted(target.name)
        : refused('Invalid', `the controller of the GatewayClass must be ${WAYPOINT_CONTROLLER}`);
    }
    case 'Gateway':
      return reading.get(base.waypoints, key) === undefined
        ? refused('TargetNotFound', `there is no Gateway ${key} with an address`)
        : accepted(key);
    case 'Service':
    case 'ServiceEntry': {
      const object =
        target.kind === 'Service'
          ? reading.get(base.objects.Service, key)
          : reading.get(base.objects.ServiceEntry, key);
      if (object === undefined) {
        return refused('TargetNotFound', `there is no ${target.kind} ${key}`);
      }
      const waypoint = services.bindingOf(reading, target.kind, key)?.waypoint ?? null;
      return waypoint === null
        ? refused('AncestorNotBound', `${target.kind} ${key} is not bound to a waypoint`)
        : accepted(waypoint.key);
    }
    default:
      return refused('Invalid', `a policy cannot target a ${target.kind}`);
  }
}

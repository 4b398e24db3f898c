import { MESH_ACTORS, NODE_ACTORS, isActorName, isNodeActor } from './actors.ts';
import type { ActorName } from './actors.ts';
import { UsageError } from '../../lib/errors/usage-error.ts';
import type { MeshPlan, NodePlan } from './topology.ts';

/** One actor role of the mesh; `node` is null for a role of the whole mesh. */
export interface Role {
  readonly actor: ActorName;
  readonly node: NodePlan | null;
}

/** Every role of a mesh. */
export function meshRoles(plan: MeshPlan): readonly Role[] {
  return [
    ...MESH_ACTORS.map((actor) => ({ actor, node: null })),
    ...plan.nodes.flatMap((node) => NODE_ACTORS.map((actor) => ({ actor, node }))),
  ];
}

/**
 * Parses `<node>/<actor>`, or `<actor>` or `ctl/<actor>` for an actor of the whole mesh.
 * Throws UsageError that lists the roles.
 */
export function parseRole(text: string, plan: MeshPlan): Role {
  const parts = text.split('/');
  const actor = parts.at(-1) ?? '';
  const where = parts.length === 2 ? (parts[0] ?? '') : null;
  if (parts.length > 2 || !isActorName(actor)) throw unknownRole(text, plan);
  if (!isNodeActor(actor)) {
    if (where !== null && where !== 'ctl') throw unknownRole(text, plan);
    return { actor, node: null };
  }
  const node = plan.nodes.find((candidate) => candidate.name === where);
  if (node === undefined) throw unknownRole(text, plan);
  return { actor, node };
}

function unknownRole(text: string, plan: MeshPlan): UsageError {
  const names = meshRoles(plan).map(roleName);
  return new UsageError(
    `no role ${JSON.stringify(text)} in this mesh; there are ${names.join(', ')}`,
  );
}

/** `<node>/<actor>` or `<actor>`. */
export function roleName(role: Role): string {
  return role.node === null ? role.actor : `${role.node.name}/${role.actor}`;
}

/** Whether both are the same role. */
export function sameRole(a: Role, b: Role): boolean {
  return a.actor === b.actor && a.node?.name === b.node?.name;
}
